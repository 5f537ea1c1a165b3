"""Two real processes over gloo: one is killed, stalls, ends early or is slow, and the report names it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import steadyrun
from steadyrun.panels.board import board_of
from steadyrun.records import Event
from steadyrun.report import Report
from steadyrun.trees.walker import Asked

pytestmark = pytest.mark.long

PROGRAM = Path(__file__).with_name("stalling_program.py")
LONGEST = 240.0  # seconds until a test gives up


@contextmanager
def started(folder: Path, case: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Both ranks of a case; whatever happens, none outlives the test."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, str(PROGRAM), str(folder)]
    ranks = []
    try:
        for rank in (0, 1):
            with (folder / f"output-{rank}").open("wb") as output:
                ranks.append(subprocess.Popen([*words, str(rank), case], stdout=output, stderr=output, env=environment))
        yield ranks
    finally:
        for process in ranks:
            process.kill()
            process.wait()


def until(condition: Callable[[], bool], folder: Path) -> None:
    """Wait for a condition; a test that waits too long shows what the ranks wrote."""
    deadline = time.monotonic() + LONGEST
    while not condition():
        shown = "\n".join((folder / f"output-{rank}").read_text() for rank in (0, 1))
        assert time.monotonic() < deadline, shown
        time.sleep(0.1)


def recorded(run: Path, rank: int, kind: str) -> list[Event]:
    if not (run / "manifest.json").exists():
        return []
    return steadyrun.open_run(run).events(kind, rank)


def answer(report: Report, code: str) -> Asked:
    return next(asked for asked in report.walk.path if asked.question.code == code)


def test_a_stalled_rank_is_named_with_its_stacks_and_a_killed_one_with_its_step(tmp_path: Path) -> None:
    run = tmp_path / "stall"
    with started(tmp_path, "stall") as ranks:

        def both_stall() -> bool:
            return all(any(event.step == 6 for event in recorded(run, rank, "stalled")) for rank in (0, 1))

        until(both_stall, tmp_path)
        stalled = answer(steadyrun.check(run), "R4.1").answer
        assert (stalled.outcome, stalled.step) == ("stalled", 6)
        assert stalled.message.startswith("Rank 1 has been in step 6 (data)")
        assert "rank 0 waits" in stalled.message
        assert "in wait_for; its stacks are in stacks/rank-00001.txt" in stalled.message
        assert "did not start gloo:all_reduce" in stalled.message
        table = board_of(run).ranks
        assert table is not None
        assert [(row.name, row.state) for row in table.rows] == [
            ("rank 1", "stalled at step 6"),
            ("rank 0", "waiting at step 6"),
        ]
        assert "in wait_for" in (run / "stacks" / "rank-00001.txt").read_text()
        assert "backward" in (run / "stacks" / "rank-00000.txt").read_text()

        (tmp_path / "go on").touch()
        until(lambda: all(recorded(run, rank, "went-on") for rank in (0, 1)), tmp_path)
        until(lambda: all((steadyrun.open_run(run).last_step(rank) or 0) > 20 for rank in (0, 1)), tmp_path)
        ranks[1].send_signal(signal.SIGKILL)
        until(lambda: ranks[0].poll() is not None, tmp_path)
        ranks[1].wait()

    died = answer(report := steadyrun.check(run), "R4.1").answer
    assert report.verdict == "fault"
    assert died.outcome == "died", died.message
    (failure,) = recorded(run, 0, "process-failed")
    assert failure.fields["cause"] == "connection"
    assert died.step == failure.step
    assert died.message.startswith(f"Rank 1 died at step {died.step} without an exception")
    assert "Look in the log of host " in died.fix
    assert " UTC: " in died.fix
    assert "A7.1" in [asked.question.code for asked in report.ranking.consequences]
    view = steadyrun.open_run(run)
    assert view.verify() == []  # the files of both ranks are whole
    assert died.step is not None
    assert len(view.series("loss", 0)) == died.step
    assert 20 < len(view.series("loss", 1)) <= died.step + 1


def test_unequal_batches(tmp_path: Path) -> None:
    run = tmp_path / "unequal"
    with started(tmp_path, "unequal") as ranks:
        until(lambda: ranks[1].poll() is not None, tmp_path)  # it waits for rank 0 until the time-out
        (failure,) = recorded(run, 1, "process-failed")
        assert (failure.fields["cause"], failure.fields["operation"], failure.step) == ("timeout", "backward", 8)
        early = answer(steadyrun.check(run), "R4.1").answer
    assert early.outcome == "ended-early", early.message
    assert early.message.startswith("Rank 0 ended after step 7, but rank 1 waited in step 8")


def test_a_slow_rank_and_a_healthy_job(tmp_path: Path) -> None:
    with started(tmp_path, "healthy,slow") as ranks:
        until(lambda: all(process.poll() is not None for process in ranks), tmp_path)
    generous = {"R4.2.slow": 0.6}  # the slow rank takes far more of each step, whatever else runs on this machine
    healthy = steadyrun.check(tmp_path / "healthy", thresholds=generous)
    assert answer(healthy, "R4.1").answer.message == "All 2 processes ended."
    assert answer(healthy, "R4.2").answer.outcome == "pass"
    assert recorded(tmp_path / "healthy", 0, "stalled") == recorded(tmp_path / "healthy", 1, "stalled") == []

    slow = answer(steadyrun.check(tmp_path / "slow", thresholds=generous), "R4.2").answer
    assert slow.outcome == "slow", slow.message
    assert slow.message.startswith("Rank 1 holds up the job")
    assert slow.measured["data"] > 0.09 > slow.measured["others_data"]
    assert "data of rank 1" in slow.fix
