"""`steadyrun check --follow` on a run that another process is writing."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from terminal import PROGRAM, in_terminal

WRITER = """
import sys, time
from pathlib import Path
import steadyrun

config = {"vocab_size": 512, "schedule": "constant", "lr_max": 0.001}
run = steadyrun.record("run", config=config, flush_steps=1)
for step in range(6):
    run.log(loss=6.2, lr=float(sys.argv[1]))
while not Path("go").exists():
    time.sleep(0.02)
with run:
    for step in range(6, 60):
        run.log(loss=6.2 - 10 * float(sys.argv[1]) * step, lr=float(sys.argv[1]))
    while not Path("end").exists():
        time.sleep(0.02)
"""
PATIENCE = 300
RATE = "0.001"  # 0 instead is a fault


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def start() -> Iterator[Any]:
    """Start processes that do not outlive the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*command: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, encoding="utf-8"))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def follow(start: Any, *options: str) -> subprocess.Popen[str]:
    process: subprocess.Popen[str] = start(*PROGRAM, "check", "run", "--follow", "--interval", "0.05", *options)
    return process


def next_report(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    found: dict[str, Any] = json.loads(line)
    return found


def test_every_change_is_told_until_the_run_ends(start: Any) -> None:
    writer = start(sys.executable, "-c", WRITER, RATE)
    follower = follow(start, "--json")
    found = next_report(follower)
    while found["walk"][0]["answer"] != "pass":
        found = next_report(follower)
    assert found["state"] == "running"
    assert found["last_step"] <= 5
    Path("go").touch()
    Path("end").touch()
    rest, messages = follower.communicate(timeout=PATIENCE)
    assert writer.wait(timeout=PATIENCE) == 0
    last = json.loads(rest.splitlines()[-1])
    assert (last["state"], last["last_step"]) == ("finished", 59)
    assert follower.returncode == {"healthy": 0, "fault": 1, "cannot-tell": 3}[last["verdict"]], messages
    assert json.loads(Path("run/report.json").read_text()) == last


def test_a_pipe_gets_a_line_per_change_and_the_tree_at_the_end(start: Any) -> None:
    Path("go").touch()
    Path("end").touch()
    start(sys.executable, "-c", WRITER, RATE)
    told, _ = follow(start).communicate(timeout=PATIENCE)
    lines = told.splitlines()
    assert lines[0].startswith(("step ", "no steps: "))
    assert any(": ✓ C1.1 initial loss, pass: The loss at step 0 is 6.2" in line for line in lines)
    assert any(line.endswith("  run  finished, last step 59") for line in lines)
    assert "\x1b" not in told


def test_until_fault_leaves_at_the_first_fault(start: Any) -> None:
    start(sys.executable, "-c", WRITER, "0")
    follower = follow(start, "--until-fault", "--junit")
    told, _ = follower.communicate(timeout=PATIENCE)
    assert follower.returncode == 1
    assert told.startswith("<?xml")
    assert "<failure" in told


def test_a_killed_run_has_ended(start: Any) -> None:
    writer = start(sys.executable, "-c", WRITER, RATE)
    follower = follow(start, "--json")
    next_report(follower)
    writer.kill()
    writer.communicate()
    rest, _ = follower.communicate(timeout=PATIENCE)
    assert json.loads(rest.splitlines()[-1])["state"] == "killed"


def test_ctrl_c(start: Any) -> None:
    start(sys.executable, "-c", WRITER, RATE)
    follower = follow(start, "--json")
    next_report(follower)
    follower.send_signal(signal.SIGINT)
    _, messages = follower.communicate(timeout=PATIENCE)
    assert follower.returncode == 130
    assert messages.endswith("stopped with Ctrl-C\n")
    assert "Traceback" not in messages


def test_a_run_that_has_not_begun_is_waited_for(start: Any) -> None:
    follower = follow(start, "--json", "--wait", str(PATIENCE))
    assert follower.stderr is not None
    assert follower.stderr.readline() == f"waiting up to {PATIENCE} s for run to start\n"
    start(sys.executable, "-c", WRITER, RATE)
    assert next_report(follower)["run"] == "run"


def test_a_run_that_never_begins_is_an_error(start: Any) -> None:
    follower = follow(start, "--wait", "0")
    told, messages = follower.communicate(timeout=PATIENCE)
    assert (follower.returncode, told) == (2, "")
    assert "run is not a folder" in messages


def test_a_finished_run_is_told_once(start: Any) -> None:
    Path("go").touch()
    Path("end").touch()
    assert start(sys.executable, "-c", WRITER, RATE).wait(timeout=PATIENCE) == 0
    told, _ = follow(start, "--json").communicate(timeout=PATIENCE)
    assert len(told.splitlines()) == 1


def test_a_terminal_gets_the_tree_in_place_of_the_one_before(start: Any) -> None:
    Path("go").touch()
    Path("end").touch()
    assert start(sys.executable, "-c", WRITER, "0").wait(timeout=PATIENCE) == 0
    code, text = in_terminal("check", "run", "--follow")
    assert code == 1
    before, _, last = text.rpartition("\x1b[2J\x1b[H")
    assert before.startswith("\x1b[2J\x1b[H")
    assert "✗ fault" in last


def test_the_manifest_lost_means_no_end_is_seen(start: Any) -> None:
    Path("go").touch()
    Path("end").touch()
    start(sys.executable, "-c", WRITER, RATE).wait(timeout=PATIENCE)
    Path("run/manifest.json").unlink()
    follower = follow(start, "--json")
    assert next_report(follower)["state"] == "unknown"
    assert follower.stderr is not None
    assert "the end of the run will go unnoticed" in follower.stderr.readline()
