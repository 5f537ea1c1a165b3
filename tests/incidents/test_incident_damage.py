"""Incident folders that were damaged or changed: a clear error, never a traceback, and the rest reads back."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import steadyrun
from steadyrun.cli import app
from steadyrun.errors import SteadyrunError


def loss_fn(model: nn.Module, batch: Tensor) -> Tensor:
    given: Tensor = model(batch)
    return given.square().mean()


def task() -> steadyrun.Task:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    return steadyrun.Task(model, torch.optim.SGD(model.parameters(), 0.1), loss_fn)


def train(path: Path, steps: int = 8, fails_at: int | None = None, scale: float = 1.0) -> Path:
    made = task()
    with steadyrun.record(path) as run:
        run.watch(made.model, made.optimizer, loss_fn=loss_fn)
        for step in range(steps):
            if step == fails_at:
                raise OSError("disk")
            batch = scale * torch.randn(8, 4)
            loss = loss_fn(made.model, batch)
            loss.backward()
            made.optimizer.step()
            made.optimizer.zero_grad()
            run.step(loss, batch=batch, step=step)
            time.sleep(0.005)  # the thread that writes gets its turn
            if step in (3, 6):
                run.incident(f"at {step}")
    return path


def change(path: Path, keys: list[Any], value: Any) -> None:
    content = json.loads(path.read_text())
    node = content
    for key in keys[:-1]:
        node = node[key]
    node[keys[-1]] = value
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("file", "keys", "value"),
    [
        ("incident.json", ["step"], 1e999),
        ("incident.json", ["batches"], 7),
        ("incident.json", ["batches"], []),
        ("incident.json", ["code"], 7),
        ("incident.json", ["recorded"], []),
        ("incident.json", ["recorded", "steps"], True),
        ("incident.json", ["recorded", "loss", 0], "\x1b[31m"),
        ("checkpoint.json", ["step"], "../../x"),
        ("checkpoint.json", ["flags"], "x"),
        ("checkpoint.json", ["autocast"], {"device": "cpu"}),
        ("checkpoint.json", ["state"], 7),
        ("checkpoint.json", ["state", "dict"], []),
        ("checkpoint.json", ["state", "dict", 0, 1, "dict", 0, 1], None),
        ("batches-0000000-*.json", ["steps", 0], 7),
        ("batches-0000000-*.json", ["steps", 0, "tree"], {"tensor": "../../x"}),
    ],
)
def test_a_changed_file(tmp_path: Path, file: str, keys: list[Any], value: Any) -> None:
    run = train(tmp_path / "run")
    change(next((run / "incidents" / "step-0000003").glob(file)), keys, value)
    with pytest.raises(SteadyrunError):
        steadyrun.replay(run, task, step=3)


def test_one_damaged_incident_does_not_hide_the_other(tmp_path: Path) -> None:
    run = train(tmp_path / "run")
    (run / "incidents" / "step-0000003" / "incident.json").write_text("{")
    assert steadyrun.replay(run, task).incident.step == 6
    with pytest.raises(SteadyrunError, match=r"step-0000003.*cannot be read"):
        steadyrun.replay(run, task, step=3)


def test_the_list_as_json(tmp_path: Path) -> None:
    run = train(tmp_path / "run")
    shown = json.loads(CliRunner().invoke(app, ["replay", str(run), "--list", "--json"]).stdout)
    assert [incident["step"] for incident in shown["incidents"]] == [3, 6]


def test_a_second_attempt_that_fails_at_the_same_step(tmp_path: Path) -> None:
    """Its folder holds its own batches, and none of the attempt before."""
    for scale in (1.0, 2.0):
        with pytest.raises(OSError, match="disk"):
            train(tmp_path / "run", steps=60, fails_at=50, scale=scale)
    result = steadyrun.replay(tmp_path / "run", task, step=50)
    assert result.proof.verdict == "bit-equal", str(result)
    assert sorted(result.losses)[-1] == 49
