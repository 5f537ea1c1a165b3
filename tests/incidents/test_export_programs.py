"""Exported scripts of programs with habits: other generators, modules called directly, factories with arguments."""

import subprocess
import sys
from pathlib import Path

import pytest

import steadyrun
from steadyrun.incidents.task import takes_config

PROGRAM = """
import random
import numpy as np
import torch
from torch import nn
import steadyrun


def loss_fn(model, batch):
    share = np.random.beta(0.4, 0.4) + random.random()
    with torch.no_grad():
        seen = model(batch)
    hidden = nn.functional.dropout(model[0](batch * share), 0.3)  # a part of the model, called directly
    return (model[1](hidden) - seen).square().mean()


def task(*, width=4):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, width), nn.Linear(width, 1))
    return steadyrun.Task(model, torch.optim.Adam(model.parameters()), loss_fn)


def main(path):
    made = task()
    with steadyrun.record(path) as run:
        run.watch(made.model, made.optimizer, loss_fn=loss_fn)
        for _ in range(12):
            batch = torch.randn(8, 4)
            loss = loss_fn(made.model, batch)
            loss.backward()
            made.optimizer.step()
            made.optimizer.zero_grad()
            run.step(loss, batch=batch)
        run.incident("look")
"""


def test_every_generator_and_a_part_of_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "habits.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(tmp_path))
    import habits  # type: ignore[import-not-found]

    habits.main(tmp_path / "run")
    steadyrun.replay(tmp_path / "run", "habits:task").export(tmp_path / "repro")
    command = [sys.executable, "-I", "-W", "error", str(tmp_path / "repro" / "repro.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_factory_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "habits2.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(tmp_path))
    import habits2  # type: ignore[import-not-found]

    habits2.main(tmp_path / "run")
    result = steadyrun.replay(tmp_path / "run", lambda: habits2.task())
    with pytest.raises(ValueError, match="cannot be imported"):
        result.export(tmp_path / "repro")


def test_which_factories_are_given_the_configuration() -> None:
    assert takes_config(lambda config: None)  # type: ignore[arg-type, return-value]
    assert takes_config(lambda config=None: None)  # type: ignore[arg-type, return-value]
    assert not takes_config(lambda: None)  # type: ignore[arg-type, return-value]
    assert not takes_config(lambda seed=0: None)  # type: ignore[arg-type, return-value]
    assert not takes_config(lambda *, lr=0.1: None)  # type: ignore[arg-type, return-value]
