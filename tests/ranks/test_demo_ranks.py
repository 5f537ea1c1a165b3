"""`steadyrun demo --ranks`: every engineered fault of several processes is named by `check`."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import steadyrun
from steadyrun.cli import app
from steadyrun.tutor.faults.ranks import RANK_FAULTS

pytestmark = pytest.mark.long

runner = CliRunner()
STEPS = 200


def demo(*arguments: str) -> Any:
    return runner.invoke(app, ["demo", *arguments])


def codes(run: Path) -> dict[str, Any]:
    """The graded answers of a run by code."""
    walk = steadyrun.check(run).walk.path
    return {asked.question.code: asked.answer for asked in walk if asked.answer.kind in {"fault", "suspect"}}


FEW = {"past-ddp", "one-rank-nan"}  # the others are slow


@pytest.mark.parametrize(
    "fault",
    [pytest.param(name, marks=[] if name in FEW else pytest.mark.slow) for name in RANK_FAULTS if name != "healthy"],
)
def test_each_fault_is_named_with_its_ranks(tmp_path: Path, fault: str) -> None:
    result = demo("--ranks", "2", fault, "--steps", str(STEPS), "--out", str(tmp_path / "run"))
    assert result.exit_code == 0, result.output
    found = codes(tmp_path / "run")
    leaf = RANK_FAULTS[fault].leaf
    assert leaf in found, found
    assert found[leaf].ranks, "the answer names ranks"
    assert "rank" in found[leaf].message.lower()
    assert f"({leaf})" in result.stdout or f"({leaf}," in result.stdout
    assert (tmp_path / "run/dashboard.html").exists()
    if fault == "one-rank-nan":
        assert f"replay {tmp_path / 'run'}" in result.stdout
        printed = str(steadyrun.replay(tmp_path / "run"))
        assert "averages the gradients of all 2 ranks" in printed
        assert "divided by zero" in printed
        headline = steadyrun.check(tmp_path / "run").headline
        assert headline is not None
        assert (headline.question.code, headline.answer.ranks) == ("E1.1", (1,))
        assert headline.answer.message.startswith("On rank 1: in the loss function")


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "leaf"), [("bit-flip", "R1.2"), ("one-rank-nan", "R3.1")])
def test_of_four_ranks_the_odd_one_is_named(tmp_path: Path, fault: str, leaf: str) -> None:
    demo("--ranks", "4", fault, "--steps", str(STEPS), "--out", str(tmp_path / "run"), "--train-only")
    assert codes(tmp_path / "run")[leaf].ranks == (1,)


@pytest.mark.slow
def test_a_healthy_job_has_no_finding_about_ranks(tmp_path: Path) -> None:
    demo("--ranks", "2", "--steps", str(STEPS), "--out", str(tmp_path / "run"), "--train-only")
    assert not [code for code in codes(tmp_path / "run") if code.startswith("R")]


def test_the_list_has_a_section_of_its_own() -> None:
    lines = demo("--list").stdout.splitlines()
    start = lines.index("Several processes (--ranks 2)")
    assert [line.split()[0] for line in lines[start + 1 :]] == list(RANK_FAULTS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["past-ddp"], "demo --ranks 2 past-ddp"),
        (["--ranks", "2", "bad-init"], "unknown fault of several processes 'bad-init'"),
        (["--ranks", "2", "past-ddp", "--remedy"], "--remedy is for faults of one process"),
        (["--ranks", "2", "--steps", "0"], "steps must be at least 1"),
    ],
)
def test_what_does_not_fit_is_refused(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = demo(*arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_all_processes(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["-m", "steadyrun", "demo", "--ranks", "2", "--steps", "100000", "--out", str(run)]
    job = subprocess.Popen([sys.executable, *words], start_new_session=True, stderr=subprocess.PIPE, text=True)
    try:
        while job.poll() is None and not list(run.glob("metrics/rank-00001/steps-*")):
            time.sleep(0.1)
        pids = [event.fields["pid"] for rank in (0, 1) for event in steadyrun.open_run(run).events("process", rank)]
        job.send_signal(signal.SIGINT)
        _, messages = job.communicate(timeout=120)
    finally:
        if job.poll() is None:
            job.kill()
    assert job.returncode == 130, messages
    assert "stopped with Ctrl-C" in messages
    assert len(pids) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
