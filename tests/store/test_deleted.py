"""Files that are deleted while a run records: it is said, later rows are kept, nobody else's run is touched."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import steadyrun


def _segments(run: Path) -> None:
    for path in run.glob("metrics/*/*.arrow"):
        path.unlink()


_DELETIONS: dict[str, Callable[[Path], object]] = {
    "the whole run": shutil.rmtree,
    "the run, moved": lambda run: run.rename(run.with_name("elsewhere")),
    "the metrics": lambda run: shutil.rmtree(run / "metrics"),
    "the segments": _segments,
}


@pytest.mark.parametrize("what", list(_DELETIONS))
def test_what_comes_after_a_deletion_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str) -> None:
    root = tmp_path / "run"
    with steadyrun.record(root, flush_steps=10, flush_seconds=3600) as run:
        for step in range(200):
            if step == 100:
                _DELETIONS[what](root)
            run.step(float(step))
            run.log(x=float(step))
    said = capsys.readouterr().err
    assert said.count("were deleted or moved during the run: 200 rows") == 1
    assert "do not change the folder until the run has ended" in said
    view = steadyrun.open_run(root)
    for name in ("loss", "x"):
        assert view.series(name).steps.tolist() == list(range(100, 200))
    (lost,) = view.events("rows-lost")
    assert lost.fields["rows"] == {"steps": 100, "log": 100}
    assert "200 rows" in str(steadyrun.check(root).damage)


def test_a_deletion_just_before_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with steadyrun.record(tmp_path / "run", flush_steps=1) as run:
        for step in range(20):
            run.step(float(step))
        shutil.rmtree(tmp_path / "run")
    assert "20 rows and the events so far are lost" in capsys.readouterr().err
    assert steadyrun.open_run(tmp_path / "run").events("rows-lost")


def test_deleted_events_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with steadyrun.record(tmp_path / "run") as run:
        run.step(1.0)
        shutil.rmtree(tmp_path / "run" / "events")
        run.note("still here")
        run.step(2.0)
    assert "the events so far are lost" in capsys.readouterr().err
    view = steadyrun.open_run(tmp_path / "run")
    assert len(view.series("loss")) == 2
    assert [event.fields["message"] for event in view.events("note")] == ["still here"]


def test_a_deleted_manifest_is_written_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with steadyrun.record(tmp_path / "run", {"seed": 3}, flush_steps=1) as run:
        run.step(1.0)
        (tmp_path / "run" / "manifest.json").unlink()
        run.step(2.0)
        assert steadyrun.open_run(tmp_path / "run").manifest["config"] == {"seed": 3}
    assert capsys.readouterr().err == ""


def test_a_run_that_began_in_the_same_place_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "run"
    other = f"import steadyrun\nwith steadyrun.record({str(root)!r}) as run: [run.step(7.0) for _ in range(3)]"
    with steadyrun.record(root, flush_steps=5) as run:
        for step in range(50):
            if step == 20:
                shutil.rmtree(root)
                subprocess.run([sys.executable, "-c", other], check=True, timeout=120)
                theirs = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
            run.step(float(step))
            run.val(1.0)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == theirs
    said = capsys.readouterr().err
    assert said.count("another run has started in") == 1
    assert "Give every run its own folder" in said


def test_a_place_that_became_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with steadyrun.record(tmp_path / "run", flush_steps=5) as run:
        for step in range(20):
            run.step(float(step))
            if step == 10:
                shutil.rmtree(tmp_path / "run")
                (tmp_path / "run").write_text("mine")
    assert (tmp_path / "run").read_text() == "mine"
    assert "training is not affected" in capsys.readouterr().err
