"""The exported script shows the incident in a fresh process, without steadyrun."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import steadyrun
from steadyrun.replay.bad_examples import smallest

PROGRAM = '''
"""A training script as people write them: model, loss, factory, main."""
import torch
from torch import nn
import steadyrun
from {name}_parts import Block


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.blocks(x))


def loss_fn(model, batch):
    return nn.functional.cross_entropy(model(batch["x"]), batch["y"])


def task(config):
    torch.manual_seed(config["seed"])
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    return steadyrun.Task(model, optimizer, loss_fn)


def main(path, config, bad):
    made = task(config)
    with steadyrun.record(path, config=config) as run:
        run.watch(made.model, made.optimizer, loss_fn=loss_fn, factory="{name}:task")
        for step in range(40):
            batch = {{"x": torch.randn(8, 8), "y": torch.randint(0, 3, (8,))}}
            if step == 30:
                batch = bad(batch)
            loss = loss_fn(made.model, batch)
            loss.backward()
            nn.utils.clip_grad_norm_(made.model.parameters(), 1.0)
            made.optimizer.step()
            made.optimizer.zero_grad()
            run.step(loss, batch=batch)
'''

PARTS = '''
import torch
from torch import nn


class Block(nn.Module):
    """Divides by the length of a row, which may be 0."""

    def __init__(self):
        super().__init__()
        self.linear, self.drop = nn.Linear(8, 8), nn.Dropout(0.1)

    def forward(self, x):
        return self.drop(self.linear(x / x.norm(dim=1, keepdim=True)))
'''


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A project of two files on the path, under names that no other test has."""
    name = f"trainer_{tmp_path.name.replace('-', '_')}"
    project = tmp_path / "project"
    project.mkdir()
    (project / f"{name}.py").write_text(PROGRAM.format(name=name))
    (project / f"{name}_parts.py").write_text(PARTS)
    monkeypatch.syspath_prepend(str(project))
    return name


def zero_row(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    x = batch["x"].clone()
    x[5] = 0
    return {**batch, "x": x}


def train(program: str, run: Path, bad=zero_row) -> None:
    import importlib

    importlib.import_module(program).main(run, {"seed": 3, "lr": 1e-3}, bad)


def execute(script: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(script)]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)


def test_a_nan_of_a_program_with_two_files(tmp_path: Path, program: str) -> None:
    train(program, tmp_path / "run")
    result = steadyrun.replay(tmp_path / "run", f"{program}:task")
    assert result.proof.verdict == "bit-equal"
    assert result.first_bad == 30
    assert result.culprit is not None
    assert result.culprit.module == "blocks.0"
    assert result.culprit.operation == "div"
    said = result.export(tmp_path / "repro")
    assert "1 of 8 examples reproduces it" in said
    done = execute(tmp_path / "repro/repro.py")
    assert done.returncode == 0, done.stderr
    assert "loss nan (expected nan)" in done.stdout
    files = {str(path.relative_to(tmp_path / "repro")) for path in (tmp_path / "repro").rglob("*.*")}
    code = {f"code/{program}.py", f"code/{program}_parts.py", "code/steadyrun/__init__.py"}
    assert {name for name in files if ".pyc" not in name} == {"repro.py", "facts.json", "tensors.safetensors"} | code
    text = (tmp_path / "repro/repro.py").read_text()
    assert "import steadyrun" not in text
    assert len([line for line in text.splitlines() if line.strip()]) < 60
    names = json.loads((tmp_path / "repro/facts.json").read_text())
    assert names["loss"] == "nan"


@pytest.mark.slow
def test_the_script_fails_where_the_bug_is_mended(tmp_path: Path, program: str) -> None:
    """It is a test of the fix: with another program in code/ it exits with 1."""
    train(program, tmp_path / "run")
    steadyrun.replay(tmp_path / "run", f"{program}:task").export(tmp_path / "repro")
    parts = tmp_path / f"repro/code/{program}_parts.py"
    parts.write_text(parts.read_text().replace("x.norm(dim=1, keepdim=True)", "(x.norm(dim=1, keepdim=True) + 1e-6)"))
    done = execute(tmp_path / "repro/repro.py")
    assert done.returncode == 1
    assert "non-finite parameters: none" in done.stdout


@pytest.mark.slow
def test_a_spike_keeps_its_whole_batch(tmp_path: Path, program: str) -> None:
    train(program, tmp_path / "run", bad=lambda batch: {**batch, "x": batch["x"] * 50})
    module = __import__(program)
    with steadyrun.record(tmp_path / "run2", config={"seed": 3, "lr": 1e-3}) as run:
        task = module.task({"seed": 3, "lr": 1e-3})
        run.watch(task.model, task.optimizer, loss_fn=task.loss_fn)
        for _ in range(12):
            batch = {"x": torch.randn(8, 8), "y": torch.randint(0, 3, (8,))}
            loss = task.loss_fn(task.model, batch)
            loss.backward()
            task.optimizer.step()
            task.optimizer.zero_grad()
            run.step(loss, batch=batch)
        run.incident("for the record")
    said = steadyrun.replay(tmp_path / "run2", f"{program}:task").export(tmp_path / "repro")
    assert not any("examples" in line for line in said)
    assert execute(tmp_path / "repro/repro.py").returncode == 0


@pytest.mark.slow
def test_the_tutor_needs_no_factory_and_steadyrun_is_not_loaded(tmp_path: Path) -> None:
    from steadyrun.tutor.faults import load_recipe
    from steadyrun.tutor.train import train_recorded

    train_recorded(load_recipe("log-of-zero", steps=120), tmp_path / "run")
    result = steadyrun.replay(tmp_path / "run")
    assert result.culprit is not None
    # In so short a run the temperature may reach 0 before a probability does.
    assert result.culprit.operation in {"log", "div"}
    result.export(tmp_path / "repro")
    assert execute(tmp_path / "repro/repro.py").returncode == 0
    assert not (tmp_path / "repro/code/steadyrun/store").exists()


EPSILON = """

def without_epsilon(config):
    made = task(config)
    made.optimizer = torch.optim.Adam(made.model.parameters(), lr=1e-3, eps=0.0)
    made.train_step = step
    return made


def step(task, batch):
    task.optimizer.zero_grad(set_to_none=False)
    loss = task.loss_fn(task.model, batch)
    loss.backward()
    for parameter in task.model.head.parameters():  # frozen in all but name
        parameter.grad = None if task.step < 4 else torch.zeros_like(parameter)
    task.optimizer.step()
    return loss.detach()
"""


@pytest.mark.slow
def test_an_update_that_destroys_takes_its_moments_along(tmp_path: Path, program: str) -> None:
    """Loss and gradients are finite; the optimizer divides 0 by 0."""
    import importlib

    source = tmp_path / f"project/{program}.py"
    source.write_text(source.read_text() + EPSILON)
    task = importlib.import_module(program).without_epsilon({"seed": 1, "lr": 1e-3})
    with steadyrun.record(tmp_path / "run", config={"seed": 1, "lr": 1e-3}) as run:
        run.watch(task.model, task.optimizer, loss_fn=task.loss_fn)
        for task.step in range(6):
            batch = {"x": torch.randn(8, 8), "y": torch.randint(0, 3, (8,))}
            run.step(task.train_step(task, batch), batch=batch)
    result = steadyrun.replay(tmp_path / "run", f"{program}:without_epsilon")
    assert result.proof.verdict == "bit-equal"
    assert result.incident.step == 5
    assert result.first_bad == 4
    assert result.culprit is not None
    assert (result.culprit.stage, result.culprit.cause) == ("update", "optimizer-epsilon")
    assert result.culprit.parameter.startswith("head.")
    result.export(tmp_path / "repro")
    done = execute(tmp_path / "repro/repro.py")
    assert done.returncode == 0
    assert "head.weight" in done.stdout


def test_what_cannot_be_exported_is_refused(tmp_path: Path, program: str) -> None:
    train(program, tmp_path / "run")
    result = steadyrun.replay(tmp_path / "run", f"{program}:task", hunting=False)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").touch()
    with pytest.raises(steadyrun.UsageError, match="already exists"):
        result.export(tmp_path / "full")
    result.factory = None
    with pytest.raises(steadyrun.UsageError, match="needs the factory"):
        result.export(tmp_path / "new")


def test_a_script_that_does_not_show_it_is_not_kept(tmp_path: Path, program: str) -> None:
    """The program reads a file that is not there for a stranger."""
    train(program, tmp_path / "run")
    source = tmp_path / f"project/{program}.py"
    (tmp_path / "project/data.txt").write_text("x")
    reads = "\n\ndef reads(config):\n    open('data.txt').close()\n    return task(config)\n"
    source.write_text(source.read_text() + reads)
    import importlib
    import os

    module = importlib.reload(importlib.import_module(program))
    before = Path.cwd()
    os.chdir(tmp_path / "project")
    try:
        result = steadyrun.replay(tmp_path / "run", module.reads)
        with pytest.raises(steadyrun.SteadyrunError, match=r"not kept: .*data.txt"):
            result.export(tmp_path / "repro")
    finally:
        os.chdir(before)
    assert not (tmp_path / "repro").exists()


def test_the_fewest_rows() -> None:
    batch = {"x": torch.arange(16), "y": [torch.arange(16) * 2]}
    part, (kept, total) = smallest(batch, lambda batch: bool((batch["x"] == 11).any()))
    assert (kept, total) == (1, 16)
    assert part["y"][0].tolist() == [22]
    same, (kept, total) = smallest(batch, lambda batch: len(batch["x"]) == 16)
    assert same is batch
    assert (kept, total) == (16, 16)
    assert smallest({"x": torch.ones(2), "y": torch.ones(3)}, lambda _: True)[1] == (1, 1)
