"""Vow 2: `kill -9` at a random moment costs at most the last flush interval."""

import os
import platform
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

import steadyrun
from steadyrun.store.reader import process_is_gone

FLUSH = 20
KILLS = 32

LOOP = f"""
import sys, steadyrun
run = steadyrun.record(sys.argv[1], flush_steps={FLUSH}, flush_seconds=30.0)
step = 0
while True:
    run.log(extra=step / 2)
    run.step(float(step))
    if step % 10 == 0:
        run.val(step / 3)
    step += 1
    sys.stdout.write(f"{{step}}\\n")
    sys.stdout.flush()
"""


def killed_run(path: Path, steps: int) -> int:
    """Start the loop, kill it when it has said so many steps, return how many it had said were recorded."""
    child = subprocess.Popen([sys.executable, "-c", LOOP, str(path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdout is not None
    for _ in range(steps):
        child.stdout.readline()
    child.kill()
    said, _ = child.communicate()
    whole = said[: said.rfind(b"\n") + 1].split()
    return int(whole[-1]) if whole else steps


@pytest.mark.parametrize("seed", range(4))
def test_killed_at_random_moments(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    for attempt in range(KILLS // 4):
        path = tmp_path / str(attempt)
        done = killed_run(path, chance.randint(1, 400))
        view = steadyrun.open_run(path)
        loss = view.series("loss") if "loss" in view.names() else None
        kept = 0 if loss is None else len(loss)
        assert kept > done - FLUSH - 1
        if loss is not None:
            assert loss.values.tolist() == [float(step) for step in range(kept)]
            assert view.series("val_loss").steps.tolist()[: kept // 10] == list(range(0, kept, 10))[: kept // 10]
        assert view.state == "killed"
        assert str(view)


def test_killed_and_resumed_again_and_again(tmp_path: Path) -> None:
    for _ in range(4):
        killed_run(tmp_path, 3 * FLUSH)
    view = steadyrun.open_run(tmp_path)
    steps = view.series("loss").steps.tolist()
    assert steps == list(range(len(steps)))
    assert [event.fields["attempt"] for event in view.events("resume")] == [2, 3, 4]


def test_a_process_that_only_waits_for_its_parent_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    deadline = time.monotonic() + 300
    process = {"host": platform.node(), "pid": child.pid}
    while not process_is_gone(process) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process_is_gone(process)  # not yet waited for: a zombie
    child.wait()
    assert not process_is_gone({"host": platform.node(), "pid": os.getpid()})


def test_what_a_killed_process_left_half_written_goes_with_the_next_attempt(tmp_path: Path) -> None:
    steadyrun.record(tmp_path).close()
    folders = ["", "metrics/rank-00000", "incidents/step-0000010", "postmortems"]
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        for name, age in (("old.json.1234.tmp", 3600), ("new.json.1235.tmp", 0), ("kept.json", 3600)):
            (tmp_path / folder / name).touch()
            os.utime(tmp_path / folder / name, (time.time() - age,) * 2)
    assert steadyrun.open_run(tmp_path).verify() == []
    steadyrun.record(tmp_path).close()
    left = {path.name for folder in folders for path in (tmp_path / folder).iterdir()}
    assert "old.json.1234.tmp" not in left
    assert all((tmp_path / folder / name).exists() for folder in folders for name in ("new.json.1235.tmp", "kept.json"))
