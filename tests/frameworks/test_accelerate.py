"""The tracker in a real Accelerate loop."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn

import steadyrun
from steadyrun.integrations.accelerate import SteadyrunTracker

ROOT = Path(__file__).parent.parent.parent


def batches(count: int, seed: int = 0) -> list[tuple[Tensor, Tensor]]:
    inputs = torch.randn(count, 16, 8, generator=torch.Generator().manual_seed(seed))
    return [(each, each[:, :4].argmax(dim=1)) for each in inputs]


def train(tracker: SteadyrunTracker | None, count: int, *, watch: bool = False, rate: float = 1e-2) -> tuple[Any, ...]:
    """Two micro-batches per step, clipped; returns losses by step, the weights and the gradient norms."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, count)
    accelerator = Accelerator(cpu=True, log_with=tracker, gradient_accumulation_steps=2)
    if tracker is not None:
        accelerator.init_trackers("tests", config={"num_classes": 4, "accumulation": 2, "seed": 0, "clip": 1.0})
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    if tracker is not None and watch:
        tracker.watch(model, optimizer, scheduler=scheduler)
    kept: list[tuple[Any, Any]] = []
    losses, norms = [], []
    for batch in batches(2 * count):
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
            kept.append((loss.detach(), batch))
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                norms.append(accelerator.clip_grad_norm_(model.parameters(), 1.0).item())
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            mean = torch.stack([each for each, _ in kept]).mean()
            losses.append(mean.item())
            if tracker is not None and watch:
                tracker.step(mean, batch=[each for _, each in kept])
            kept = []
            accelerator.log({"train_loss": losses[-1], "lr": scheduler.get_last_lr()[0], "speed": 1.5, "text": "x"})
    with torch.no_grad():
        held_out = batches(1, seed=5)[0]
        model.eval()
        accelerator.log({"eval_loss": nn.functional.cross_entropy(model(held_out[0]), held_out[1]).item()})
    accelerator.end_training()
    return losses, [each.detach().clone() for each in model.parameters()], norms


def test_what_is_logged_is_recorded(tmp_path: Path) -> None:
    losses, *_ = train(SteadyrunTracker(tmp_path / "run", config={"seed": 7}), 30)
    view = steadyrun.open_run(tmp_path / "run")
    assert view.state == "finished"
    np.testing.assert_allclose(view.series("loss").values, losses)
    assert view.series("loss").steps.tolist() == list(range(30))
    assert len(view.series("lr/0").values) == len(view.series("speed").values) == 30
    assert view.series("val_loss").steps.tolist() == [29]
    assert view.manifest["config"] == {"num_classes": 4, "accumulation": 2, "seed": 7, "clip": 1.0}
    assert "text" not in view.names()


def test_steps_of_ones_own_and_a_second_run(tmp_path: Path) -> None:
    for values, resume in (([3.0, 2.0], False), ([1.5, 1.0], False), ([0.5], True)):
        tracker = SteadyrunTracker(tmp_path / "run", resume=resume)
        accelerator = Accelerator(cpu=True, log_with=tracker)
        accelerator.init_trackers("tests")
        for place, value in enumerate(values):
            accelerator.log({"loss": torch.tensor(value), "step": 3}, step=None if resume else 10 * place)
        accelerator.end_training()
    first, second = (steadyrun.open_run(tmp_path / name) for name in ("run", "run-2"))
    assert first.series("loss").steps.tolist() == [0, 10]
    assert first.series("loss").values.tolist() == [3.0, 2.0]
    assert second.series("loss").values.tolist() == [1.5, 1.0, 0.5]
    assert second.series("loss").steps.tolist() == [0, 10, 11]
    assert second.series("logged_step").values[0] == 3


def test_the_probes_see_the_prepared_objects_and_change_nothing(tmp_path: Path) -> None:
    plain, weights, _ = train(None, 120)
    losses, recorded, norms = train(SteadyrunTracker(tmp_path / "run"), 120, watch=True)
    assert losses == plain
    assert all(torch.equal(one, two) for one, two in zip(weights, recorded, strict=True))
    view = steadyrun.open_run(tmp_path / "run")
    assert view.events("probe-failed") == []
    np.testing.assert_allclose(view.series("loss").values, losses)
    np.testing.assert_allclose(view.series("grad_norm").values, norms, rtol=1e-6)
    np.testing.assert_allclose(view.series("lr/0").values[:2], [1e-2, 1e-2 - 0.009 / 120], rtol=1e-6)
    assert set(view.series("backwards").values) == {2.0}
    assert view.manifest["param_groups"][0]["class"] == "AdamW"
    assert {"logged_loss", "logged_lr", "speed", "batch_hash", "moment2_norm/0"} <= set(view.names())
    report = steadyrun.check(tmp_path / "run")
    assert report.verdict == "healthy"


def test_a_rate_that_blows_up_is_found(tmp_path: Path) -> None:
    train(SteadyrunTracker(tmp_path / "run"), 120, watch=True, rate=1e4)
    report = steadyrun.check(tmp_path / "run")
    assert report.verdict == "fault"


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(steadyrun.UsageError, match="lr_max must be a number"):
        SteadyrunTracker("run", config={"lr_max": "fast"})
    with pytest.raises(steadyrun.UsageError, match="must be a dict"):
        SteadyrunTracker("run").store_init_configuration([1, 2])  # type: ignore[arg-type]


def test_the_example_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "integrations" / "accelerate.md").read_text()
    (program,) = re.findall(r"```python\n(import torch.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(program, {})
    assert "✓ healthy  experiments/my-run  finished, last step 149" in capsys.readouterr().out
