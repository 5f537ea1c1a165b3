"""What a run leaves at its end, and what the next attempt keeps of it."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import incident_programs as programs
import pytest
import torch
from incident_programs import cnn

import steadyrun
from steadyrun.capture.checkpoints import keep_earlier
from steadyrun.program import tensor_files
from steadyrun.program.packing import unpack
from steadyrun.replay.incident import choose, incidents_of
from steadyrun.tutor.faults import load_recipe
from steadyrun.tutor.train import train_recorded

ROLLING = "incidents/rolling"


def names(run: Path) -> list[str]:
    return sorted(path.name for path in (run / ROLLING).iterdir())


def go_on(loop: programs.Loop, path: Path, steps: int, first: int = 0) -> None:
    task = loop.task
    with steadyrun.record(path) as run:
        run.watch(task.model, task.optimizer, scheduler=task.scheduler, loss_fn=task.loss_fn, **loop.watch)
        for step in range(first, first + steps):
            loop.one(run, step)


def test_a_clean_end_leaves_the_state_that_the_next_step_would_begin_with(tmp_path: Path) -> None:
    loop = cnn()
    go_on(loop, tmp_path / "run", 70)
    assert names(tmp_path / "run") == ["step-0000070.json", "step-0000070.safetensors"]
    content, tensors = tensor_files.load(tmp_path / "run" / ROLLING / "step-0000070")
    assert (content["step"], content["attempt"], content["finite"]) == (70, 1, True)
    for name, parameter in loop.task.model.named_parameters():
        assert torch.equal(parameter, tensors[f"parameters.{name}"])
    assert unpack(content["state"], tensors, torch.device("cpu"))["scheduler"]["last_epoch"] == 70


def test_a_state_that_is_not_finite_does_not_replace_the_last_good_one(tmp_path: Path) -> None:
    loop = cnn(spoil=lambda now, part: [part[0] * float("nan"), part[1]] if now == 50 else part)
    loop.watch = {"capture": {"every": 20}}
    go_on(loop, tmp_path / "run", 70)
    assert names(tmp_path / "run") == ["step-0000040.json", "step-0000040.safetensors"]


def test_after_a_failure_nothing_is_cleared_away(tmp_path: Path) -> None:
    loop = cnn(watch={"capture": {"every": 20}})
    with pytest.raises(RuntimeError), steadyrun.record(tmp_path / "run") as run:
        run.watch(loop.task.model, loop.task.optimizer, loss_fn=loop.task.loss_fn, capture={"every": 20})
        for step in range(50):
            loop.one(run, step)
        raise RuntimeError
    kept = [name for name in names(tmp_path / "run") if name.endswith("json")]
    assert kept == ["step-0000020.json", "step-0000040.json"]


def test_a_run_without_steps_leaves_no_checkpoint(tmp_path: Path) -> None:
    go_on(cnn(), tmp_path / "run", 0)
    assert not (tmp_path / "run" / ROLLING).exists()


def test_the_next_attempt_keeps_it_and_only_the_latest(tmp_path: Path) -> None:
    loop, path = cnn(), tmp_path / "run"
    for attempt in range(3):
        go_on(loop, path, 30, 30 * attempt)
    assert names(path) == [
        "before-attempt-003.json",
        "before-attempt-003.safetensors",
        "step-0000090.json",
        "step-0000090.safetensors",
    ]
    content, _ = tensor_files.load(path / ROLLING / "before-attempt-003")
    assert (content["step"], content["attempt"], content["tensors"]["file"]) == (
        60,
        2,
        "before-attempt-003.safetensors",
    )


def test_an_attempt_that_never_came_to_a_step_loses_nothing(tmp_path: Path) -> None:
    loop, path = cnn(), tmp_path / "run"
    go_on(loop, path, 30)
    go_on(loop, path, 0)
    go_on(loop, path, 5, 30)
    assert tensor_files.load(path / ROLLING / "before-attempt-003")[0]["step"] == 30


def test_incidents_soon_after_a_resume_have_the_state_before_it(tmp_path: Path) -> None:
    loop, path = cnn(), tmp_path / "run"
    go_on(loop, path, 30)
    before = {name: parameter.detach().clone() for name, parameter in loop.task.model.named_parameters()}
    with steadyrun.record(path) as run:
        run.watch(loop.task.model, loop.task.optimizer, scheduler=loop.task.scheduler, loss_fn=loop.task.loss_fn)
        for step in range(30, 260):
            loop.one(run, step)
            if step in (40, 230, 231):
                run.incident("look")
    near, edge, far = incidents_of(path)
    assert near.content["before_seam"] == edge.content["before_seam"] == 30
    assert near.before_seam is not None
    tree, tensors = near.before_seam
    saved = unpack(tree, tensors, torch.device("cpu"))
    assert all(torch.equal(before[name], saved["parameters"][name]) for name in before)
    assert "before_seam" not in far.content
    assert far.before_seam is None
    assert not list(far.folder.glob("before_seam*"))


def test_a_first_attempt_has_no_seam(tmp_path: Path) -> None:
    loop = cnn()
    with steadyrun.record(tmp_path / "run") as run:
        run.watch(loop.task.model, loop.task.optimizer, loss_fn=loop.task.loss_fn)
        loop.one(run, 0)
        run.incident("look")
    assert choose(tmp_path / "run").before_seam is None


def test_the_moments_that_a_resume_forgot_are_there(tmp_path: Path) -> None:
    train_recorded(load_recipe("optimizer-reset", seed=1, steps=200), tmp_path / "run")
    incident = next(candidate for candidate in incidents_of(tmp_path / "run") if candidate.kind == "fault")
    assert incident.content["found"]["outcome"] == "optimizer-reset"
    assert incident.content["before_seam"] == 100
    assert incident.before_seam is not None
    tree, tensors = incident.before_seam
    before = unpack(tree, tensors, torch.device("cpu"))["optimizers"][0]["state"]
    after = unpack(*incident.state, torch.device("cpu"))["optimizers"][0]["state"]
    assert {float(moments["step"]) for moments in before.values()} == {100.0}
    assert all(float(moments["step"]) < 100 for moments in after.values())


_KILLED = """
import pathlib, sys, time
sys.path.insert(0, {folder!r})
from incident_programs import cnn
from steadyrun.capture import checkpoints as earlier
from steadyrun.program import tensor_files
def stop(*_):
    print("now", flush=True)
    time.sleep(600)
if {where!r} == "first checkpoint":
    tensor_files.write_tensors = stop
elif {where!r} == "before the rename":
    real = earlier.replace_file
    earlier.replace_file = lambda *given: (real(*given), stop())
else:
    pathlib.Path.unlink = stop
cnn().run({run!r}, 100000)
"""


@pytest.mark.parametrize("where", ["first checkpoint", "before the rename", "after the rename"])
def test_killed_after_a_resume_the_checkpoint_before_it_stays(tmp_path: Path, where: str) -> None:
    go_on(cnn(), tmp_path / "run", 30)
    folder = Path(__file__).parents[2] / "benchmarks"
    code = textwrap.dedent(_KILLED).format(folder=str(folder), run=str(tmp_path / "run"), where=where)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "now\n"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    go_on(cnn(), tmp_path / "run", 5, 30)
    content, _ = tensor_files.load(tmp_path / "run" / ROLLING / "before-attempt-003")
    assert (content["step"], content["attempt"]) == (30, 1)
    left = [name for name in names(tmp_path / "run") if not name.startswith("step-")]
    assert left == ["before-attempt-003.json", "before-attempt-003.safetensors"]


def test_what_is_damaged_is_not_kept(tmp_path: Path) -> None:
    go_on(cnn(), tmp_path / "run", 30)
    folder = tmp_path / "run" / ROLLING
    (folder / "step-0000030.safetensors").write_bytes(b"short")
    (folder / "other.json").write_text("{")
    (folder / "more.json").write_text(json.dumps({"schema": 1, "finite": True}))
    assert keep_earlier(folder, 2) is None
