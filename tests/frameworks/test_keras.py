"""The Keras callback on both backends, each in a process of its own."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import steadyrun

PROGRAMS = Path(__file__).parent / "keras_programs.py"
BACKENDS = ["torch", "jax"]
SIZES = [32] * 10 + [16]


@dataclass(frozen=True)
class Done:
    """All programs of one backend: their folders, and what they told."""

    folder: Path
    told: dict[str, Any]


@pytest.fixture(scope="module", params=BACKENDS)
def done(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp(request.param)
    ended = python([PROGRAMS, folder], request.param, folder)
    assert "training is not affected" not in ended.stderr
    return Done(folder, json.loads(ended.stdout.splitlines()[-1]))


def python(arguments: list[Any], backend: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KERAS_BACKEND": backend, "KERAS_HOME": str(folder)}
    # Most of the time goes into compiling the same model again.
    environment["JAX_COMPILATION_CACHE_DIR"] = str(folder / "compiled")
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    ended = subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended


def test_training_is_the_same_and_the_losses_are_those_of_the_batches(done: Done) -> None:
    told = done.told["same"]
    assert told["equal"] is True
    view = steadyrun.open_run(done.folder / "same" / "run")
    losses = view.series("loss").values.reshape(3, 11)
    for epoch, row in enumerate(losses):  # the running mean of what was recorded is what Keras tells
        for number in range(11):
            weights = SIZES[: number + 1]
            mean = sum(w * loss for w, loss in zip(weights, row, strict=False)) / sum(weights)
            assert mean == pytest.approx(told["means"][11 * epoch + number], rel=1e-5)
    rates = [1e-2 * (1 + math.cos(math.pi * step / 110)) / 2 for step in range(33)]
    assert view.series("lr/0").values == pytest.approx(rates, rel=1e-4)
    assert view.series("val_loss").steps.tolist() == [10, 21, 32]
    blocks = {name for name in view.names() if name.startswith("update_ratio/")}
    assert blocks == {"update_ratio/hidden", "update_ratio/norm", "update_ratio/out"}
    config = view.manifest["config"]
    assert (config["num_classes"], config["clip"], config["total_steps"]) == (5, 1.0, 33)
    assert ("grad_norm" in view.names()) == ("torch" in config["framework"])


def test_loss_and_gradient_norm_of_the_first_step(done: Done) -> None:
    """The norm is that before Keras clips; inside of JAX's compiled step it cannot be seen."""
    if not done.told["first_step"]:
        pytest.skip("the torch backend alone shows its gradients")
    view = steadyrun.open_run(done.folder / "first_step" / "run")
    for name, value in done.told["first_step"].items():
        assert view.series(name).values[0] == pytest.approx(value, rel=1e-5)


def test_no_fault_on_a_healthy_training(done: Done) -> None:
    for name in ("run", "plateau"):
        report = steadyrun.check(done.folder / "healthy" / name)
        assert report.verdict == "healthy", str(report)
    assert steadyrun.open_run(done.folder / "healthy" / "run").manifest["state"] == "finished"


def test_accumulation(done: Done) -> None:
    """Eleven batches an epoch, three to a step: a step may begin in one epoch and end in the next."""
    folder = done.folder / "accumulated" / "run"
    view = steadyrun.open_run(folder)
    assert view.series("loss").steps.tolist() == list(range(11))
    assert view.manifest["config"]["accumulation"] == 3
    assert steadyrun.check(folder).verdict != "fault"


def test_resuming(done: Done) -> None:
    folder = done.folder / "resumed"
    view = steadyrun.open_run(folder / "run")
    assert view.series("loss").steps.tolist() == list(range(44))
    assert [event.step for event in view.events("resume")] == [22]
    assert steadyrun.open_run(folder / "run-2").series("loss").steps.tolist() == list(range(11))


def test_a_loss_that_is_not_a_number_stops_the_training(done: Done) -> None:
    assert done.told["overflow"]["stopped"].startswith("D1")
    assert steadyrun.open_run(done.folder / "overflow" / "run").manifest["state"] == "stopped"


def test_a_missing_warmup_is_caught(done: Done) -> None:
    headline = steadyrun.check(done.folder / "no_warmup" / "run").headline
    assert headline is not None
    assert headline.question.code == "C2.1"


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_example_of_the_page(tmp_path: Path, backend: str) -> None:
    page = Path(__file__).parents[2] / "docs" / "integrations" / "keras.md"
    for block in page.read_text().split("```python\n")[1:]:
        python(["-c", block.split("```")[0]], backend, tmp_path)
    run = tmp_path / "experiments" / "my-run"
    assert len(steadyrun.open_run(run).series("loss")) == 200
    assert steadyrun.check(run).verdict == "healthy"
