"""A run goes on in the directory it began in; the seam is recorded."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import steadyrun


def record_steps(path: Path, steps: range, value: float, **options: object) -> None:
    with steadyrun.record(path, **options) as run:
        for step in steps:
            run.step(value + step)
        run.val(value)


def test_goes_on_after_the_last_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record_steps(tmp_path, range(10), 0.0)
    record_steps(tmp_path, range(10, 15), 0.0)
    view = steadyrun.open_run(tmp_path)
    assert view.series("loss").steps.tolist() == list(range(15))
    seam = view.events("resume")[0]
    assert (seam.step, seam.fields["after_step"], seam.fields["attempt"]) == (10, 9, 2)
    assert view.manifest["attempt"] == 2
    assert view.manifest["earlier_attempts"][0]["state"] == "finished"
    assert "after step 9 (attempt 2)" in capsys.readouterr().err


def test_repeated_steps_are_replaced_but_kept(tmp_path: Path) -> None:
    record_steps(tmp_path, range(10), 0.0)
    record_steps(tmp_path, range(6, 12), 100.0, first_step=6)
    view = steadyrun.open_run(tmp_path)
    assert view.series("loss").values.tolist() == [0, 1, 2, 3, 4, 5, 106, 107, 108, 109, 110, 111]
    assert len(view.series("loss", every_attempt=True)) == 16
    assert view.series("val_loss").steps.tolist() == [11]
    assert view.series("val_loss", every_attempt=True).steps.tolist() == [9, 11]


def test_the_optimizer_tells_where_it_goes_on(tmp_path: Path) -> None:
    import torch

    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.parameters())

    def train(steps: int) -> None:
        with steadyrun.record(tmp_path) as run:
            run.watch(model, optimizer)
            for _ in range(steps):
                loss = model(torch.ones(3, 2)).sum()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                run.step(loss)

    train(7)
    saved = optimizer.state_dict()
    train(5)
    optimizer.load_state_dict(saved)
    assert int(next(iter(optimizer.state.values()))["step"]) == 12  # state_dict shares its tensors
    for state in optimizer.state.values():
        state["step"] = torch.tensor(7.0)
    train(2)  # back to the checkpoint after 7 steps
    view = steadyrun.open_run(tmp_path)
    assert [event.step for event in view.events("resume")] == [7, 7]
    assert view.series("loss").steps.tolist() == list(range(9))


def test_a_killed_attempt_is_called_killed(tmp_path: Path) -> None:
    record_steps(tmp_path, range(3), 0.0)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["state"] = "running"
    manifest["process"]["pid"] = 2**22 + 1  # above the largest pid Linux gives
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert steadyrun.open_run(tmp_path).state == "killed"
    record_steps(tmp_path, range(3, 5), 0.0)
    assert steadyrun.open_run(tmp_path).manifest["earlier_attempts"][0]["state"] == "killed"


def test_a_notebook_cell_that_is_run_again(tmp_path: Path) -> None:
    first = steadyrun.record(tmp_path)
    first.step(1.0)
    second = steadyrun.record(tmp_path)
    first.step(99.0)
    second.step(2.0)
    second.close()
    view = steadyrun.open_run(tmp_path)
    assert view.series("loss").values.tolist() == [1.0, 2.0]
    assert view.manifest["earlier_attempts"][0]["state"] == "finished"


def test_two_processes_at_once_do_not_mix(tmp_path: Path) -> None:
    program = """
import sys, steadyrun
run = steadyrun.record(sys.argv[1], flush_steps=1)
run.step(float(sys.argv[2]))
print("ready", flush=True)
sys.stdin.read()
run.step(float(sys.argv[2]))
run.close()
"""
    start = [sys.executable, "-c", program, str(tmp_path)]
    children = []
    for value in ("1", "2"):
        child = subprocess.Popen(
            [*start, value], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        children.append(child)
    said = [child.communicate("")[1] for child in children]
    assert "as well" in said[1]
    view = steadyrun.open_run(tmp_path)
    assert view.series("loss", every_attempt=True).values.tolist() == [1, 1, 2, 2]
    assert view.series("loss").values.tolist() == [1, 2, 2]


def test_resume_can_be_refused(tmp_path: Path) -> None:
    record_steps(tmp_path, range(3), 0.0)
    with pytest.raises(steadyrun.UsageError, match="already holds a run"):
        steadyrun.record(tmp_path, resume=False)


def test_another_rank_writes_beside(tmp_path: Path) -> None:
    record_steps(tmp_path, range(3), 0.0)
    record_steps(tmp_path, range(3), 50.0, rank=1)
    view = steadyrun.open_run(tmp_path)
    assert view.ranks == [0, 1]
    assert view.series("loss").values.tolist() == [0, 1, 2]
    assert view.series("loss", rank=1).values.tolist() == [50, 51, 52]
    assert view.manifest["attempt"] == 1
