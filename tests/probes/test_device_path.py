"""What recording does on an accelerator, on one that holds no numbers: whoever asks for a value gets an error.

Tensors on torch's `meta` device go the way of every device that is not the CPU: values stay there until a flush moves
them together. That one copy is replaced by zeros here. Anything else that would make the host wait, in an ordinary or
in a sampled step, raises and becomes a `probe-failed` event.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import steadyrun
from steadyrun.probes import row_queue
from steadyrun.tutor.model import MiniGPT, ModelConfig

Program = tuple[nn.Module, Callable[[], Any], Callable[[nn.Module, Any], Tensor]]
STEPS = 27  # the early samples, and one of every probe after them


def gpt() -> Program:
    def losses(model: nn.Module, tokens: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    return MiniGPT(ModelConfig(64, 16, 2, 64, 2)), lambda: torch.randint(0, 64, (8, 17)), losses


def classifier() -> Program:
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 36, 64), nn.Linear(64, 10)
    )
    batch = lambda: (torch.randn(16, 3, 8, 8), torch.randint(0, 10, (16,)))  # noqa: E731
    return model, batch, lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1])


@pytest.fixture(autouse=True)
def arriving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_queue, "_to_host", lambda joined: torch.zeros(joined.shape, dtype=joined.dtype))


def record(root: Path, program: Callable[[], Program], *, clip: bool = True, spoil: Any = None) -> Any:
    with torch.device("meta"):
        model, draw, loss_fn = program()
    with steadyrun.record(root, config={"pad_id": 0, "eos_id": 1}, every=25) as run:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
        # A state without values cannot be copied: checkpoints are off, the rest of capture runs.
        capture = {"checkpoint_bytes": 1}
        run.watch(model, optimizer, scheduler=scheduler, loss_fn=loss_fn, monitor=False, capture=capture)
        if spoil is not None:
            spoil(run)
        for _ in range(STEPS):
            with torch.device("meta"):
                batch = draw()
            loss = loss_fn(model, batch)
            loss.backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            run.step(loss, batch=batch, class_losses={"all": loss.detach() / 2})
    return steadyrun.open_run(root)


@pytest.mark.parametrize("clip", [True, False])
def test_a_language_model_asks_the_device_for_nothing(tmp_path: Path, clip: bool) -> None:
    run = record(tmp_path / "run", gpt, clip=clip)
    assert [event.fields for event in run.events("probe-failed")] == []
    expected = ["loss", "class_loss/all", "grad_norm", "lr/0", "batch_hash", "tokens", "clipped"]
    assert set(expected) <= set(run.names())
    assert len(run.series("loss")) == STEPS
    for sampled in (
        "activation/blocks.1",
        "block_grad_norm/blocks.0",
        "block_param_norm/blocks.0",
        "dead_heads/blocks.0",
    ):
        assert len(run.series(sampled)) == 7, sampled
    assert any(name.startswith("spectral_norm/") for name in run.names())


def test_a_classifier_asks_the_device_for_nothing(tmp_path: Path) -> None:
    run = record(tmp_path / "run", classifier)
    assert [event.fields for event in run.events("probe-failed")] == []
    assert len(run.series("label_hash")) == STEPS
    assert {"targets/alike", "batch_nonfinite", "untouched_statistics"} <= set(run.names())


def test_the_digests_of_several_processes_ask_the_device_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    run = record(tmp_path / "run", gpt)
    assert [event.fields for event in run.events("probe-failed")] == []
    assert [event.fields["parallelism"] for event in run.events("structure")] == ["unknown"]
    for name in ("gradient_digest/unknown", "parameter_digest/unknown/blocks.0", "state_digest", "random_digest"):
        assert len(run.series(name)) == 7, name


def test_a_wait_would_be_seen(tmp_path: Path) -> None:
    def spoil(run: Any) -> None:
        parameters = run._attachment.watcher._parameters
        fill = parameters.fill
        parameters.fill = lambda row: (fill(row), parameters.parameters[0].sum().item())

    failed = record(tmp_path / "run", gpt, spoil=spoil).events("probe-failed")
    assert [event.fields["probe"] for event in failed] == ["parameter norms"]
