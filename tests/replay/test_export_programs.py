"""Exported scripts of programs with habits: other generators, modules called directly, factories with arguments."""

import subprocess
import sys
from pathlib import Path

import pytest

import steadyrun
from steadyrun.program.task import takes_config

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


VIEWS = """
import torch
from torch import nn
import steadyrun


def loss_fn(model, batch):
    return (model(batch["columns"].t()) + model(batch["rows"])).square().mean()


def task():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 1))
    return steadyrun.Task(model, torch.optim.SGD(model.parameters(), lr=0.01), loss_fn)


def main(path):
    made = task()
    data = torch.randn(2000)
    with steadyrun.record(path) as run:
        run.watch(made.model, made.optimizer, loss_fn=loss_fn)
        for step in range(12):
            rows = data[15 * step + 1 : 15 * step + 16].view(3, 5)
            batch = {"rows": rows, "columns": rows.clone().t()}
            loss = loss_fn(made.model, batch)
            loss.backward()
            made.optimizer.step()
            made.optimizer.zero_grad()
            run.step(loss, batch=batch)
        run.incident("look")
"""


def test_batches_that_are_views_of_other_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a tensor begins in memory may decide the last bit of a product."""
    (tmp_path / "views.py").write_text(VIEWS)
    monkeypatch.syspath_prepend(str(tmp_path))
    import views  # type: ignore[import-not-found]

    views.main(tmp_path / "run")
    result = steadyrun.replay(tmp_path / "run", "views:task")
    assert result.proof.verdict == "bit-equal"
    result.export(tmp_path / "repro")
    assert "laid_out(t['batch.rows']" in (tmp_path / "repro" / "repro.py").read_text()


def test_the_tensors_of_a_script_begin_where_torch_begins_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "habits3.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(tmp_path))
    import habits3  # type: ignore[import-not-found]

    habits3.main(tmp_path / "run")
    steadyrun.replay(tmp_path / "run", "habits3:task").export(tmp_path / "repro")
    look = "import runpy; t = runpy.run_path('repro.py')['t']; print({held.data_ptr() % 64 for held in t.values()})"
    code = f"import sys; sys.exit = lambda *_: None; {look}"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], cwd=tmp_path / "repro", capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "{0}"


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
