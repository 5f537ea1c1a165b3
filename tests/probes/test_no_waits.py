"""A sampled step asks no tensor for its value: on an accelerator the host would wait for the device.

On the CPU a row asks at once (`ProbeRow.put`), as nothing is waited for there; everything else is counted here. To make
a tensor of Python numbers also counts: on an accelerator its copy is a wait.
"""

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import steadyrun
from steadyrun.probes.cadence import EARLY
from steadyrun.program.torch_compat import TorchDispatchMode
from steadyrun.tutor.model import MiniGPT, ModelConfig, init_weights

WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "equal.", "index.Tensor", "lift_fresh", "unique")
ALLOWED = ("put", "scalar")  # of a row, and of a loss that is on the CPU


class Waits(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__.startswith(WAITS):
            ours = [f for f in traceback.extract_stack() if "steadyrun/probes" in f.filename.replace("\\", "/")]
            if ours and ours[-1].name not in ALLOWED:
                self.found.append(f"{func.__name__} in {ours[-1].name}")
        return func(*args, **(kwargs or {}))


def gpt() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    model = MiniGPT(ModelConfig(64, 16, 6, 32, 4))
    init_weights(model)

    def loss_of(model: nn.Module) -> Tensor:
        tokens = torch.randint(0, 64, (8, 17))
        return nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    return model, loss_of


def bounded() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.Sigmoid())
    return model, lambda model: nn.functional.mse_loss(3 * model(torch.randn(16, 64)) - 1, torch.rand(16, 64))


def contrastive() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    model = nn.Linear(64, 64)

    def loss_of(model: nn.Module) -> Tensor:
        one, other = model(torch.randn(16, 64)), model(torch.randn(16, 64))
        return nn.functional.cross_entropy(one @ other.T, torch.arange(16))

    return model, loss_of


@pytest.mark.parametrize(("program", "processes"), [(gpt, 1), (bounded, 2), (contrastive, 1)])
def test_sampled_steps_wait_for_nothing(
    program: Any, processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    torch.manual_seed(0)
    model, loss_of = program()
    optimizer = torch.optim.AdamW(model.parameters())
    waits = Waits()
    with steadyrun.record(tmp_path, config={"pad_id": 0, "eos_id": 1}, every=10) as run:
        run.watch(model, optimizer, monitor=False)
        for step in range(80):
            closely = step in EARLY or run._attachment.watcher._objective._is_rare
            if not closely and step >= 30:
                waits.__enter__()
            loss = loss_of(model)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss)
            if not closely and step >= 30:
                waits.__exit__(None, None, None)
    view = steadyrun.open_run(tmp_path)
    assert not view.events("probe-failed")
    assert len(view.series("grad_norm_used")) > 8, "steps were sampled"
    assert ("gradient_digest/unknown" in view.names()) == (processes > 1)
    assert waits.found == []


def test_a_changed_graph_is_looked_at_again(tmp_path: Path) -> None:
    """A loss whose softmax runs over the batch from step 35 on, between two close looks, with another operation."""
    torch.manual_seed(0)
    model = nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with steadyrun.record(tmp_path, every=1) as run:
        run.watch(model, optimizer, monitor=False)
        for step in range(37):
            scores = model(torch.randn(8, 16))
            scores = (2 * scores).log_softmax(0) if step >= 35 else scores.log_softmax(1)
            loss = nn.functional.nll_loss(scores, torch.randint(0, 4, (8,)))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss)
            if step == 30:
                run.flush()
                assert "wrong_axis" not in run._writer.manifest["inferred"]["objective"]
    assert steadyrun.open_run(tmp_path).manifest["inferred"]["objective"]["wrong_axis"] == [8, 4]
