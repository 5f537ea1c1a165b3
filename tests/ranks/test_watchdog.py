"""One rank of two, in this process: heartbeats, phases, stalls and failures, without another process."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import steadyrun
from steadyrun.recording import step_clock, watchdog
from steadyrun.recording.failures import describe_failure
from steadyrun.recording.step_clock import StepClock
from steadyrun.recording.watchdog import Watchdog
from steadyrun.store.heartbeats import heartbeat_file, read_heartbeats

THREAD = "steadyrun-heartbeat"


@pytest.fixture
def rank_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a launcher sets it for the second of two processes."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")


def beat_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == THREAD]


def until(condition: Callable[[], bool]) -> None:
    for _ in range(2400):
        if condition():
            return
        threading.Event().wait(0.05)
    raise AssertionError("waited for two minutes")


def events(path: Path, kind: str, rank: int = 1) -> list[dict[str, Any]]:
    return [event.fields | {"step": event.step} for event in steadyrun.open_run(path).events(kind, rank)]


def manifest(path: Path) -> None:
    """What rank 0 would write."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "manifest.json").write_text(json.dumps({"schema": 1, "state": "running"}))


def test_one_process_writes_nothing_more(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path / "run") as run:
        run.step(1.0)
        assert beat_threads() == []
    assert not (tmp_path / "run" / "heartbeats").exists()
    assert not any(name.startswith("time/") for name in steadyrun.open_run(tmp_path / "run").names())


@pytest.mark.usefixtures("rank_one")
def test_heartbeats_begin_and_end_with_the_run(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path, stall_seconds=1000) as run:
        run.step(1.0)
        assert len(beat_threads()) == 1
        until(lambda: heartbeat_file(tmp_path, 1).exists())
        beats, bad = read_heartbeats(tmp_path)
        assert (beats[1].rank, beats[1].world, beats[1].pid, beats[1].state) == (1, 2, os.getpid(), "running")
    assert beat_threads() == bad == []
    last = read_heartbeats(tmp_path)[0][1]
    assert (last.state, last.step) == ("ended", 1)
    assert sorted(path.name for path in (tmp_path / "heartbeats").iterdir()) == ["rank-00001.json"]


@pytest.mark.usefixtures("rank_one")
def test_a_stall_is_recorded_once_with_stacks_and_that_it_went_on(tmp_path: Path) -> None:
    manifest(tmp_path)

    def wait_like_a_slow_loader() -> None:
        until(lambda: bool(events(tmp_path, "stalled")))

    with steadyrun.record(tmp_path, stall_seconds=0.2) as run:
        run.step(1.0)
        wait_like_a_slow_loader()
        run.step(1.0)
        until(lambda: bool(events(tmp_path, "went-on")))
    stalled, went_on = events(tmp_path, "stalled"), events(tmp_path, "went-on")
    assert stalled[0]["step"] in {0, 1}  # the import of a library may also take that long
    assert stalled[0]["seconds"] >= 0.2
    assert stalled[0]["stacks"] == "stacks/rank-00001.txt"
    assert went_on[0]["seconds"] >= stalled[0]["seconds"]
    assert "wait_like_a_slow_loader" in (tmp_path / "stacks" / "rank-00001.txt").read_text()


@pytest.mark.usefixtures("rank_one")
def test_deleted_folders_and_a_full_disk_do_not_stop_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest(tmp_path)

    def full(*_given: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with steadyrun.record(tmp_path, stall_seconds=0.1) as run:
        until(lambda: heartbeat_file(tmp_path, 1).exists())
        (tmp_path / "heartbeats").rename(tmp_path / "elsewhere")
        until(lambda: heartbeat_file(tmp_path, 1).exists())
        with monkeypatch.context() as patch:
            patch.setattr(watchdog, "write_heartbeat", full)
            until(lambda: bool(events(tmp_path, "probe-failed")))
        heartbeat_file(tmp_path, 1).unlink()
        until(lambda: heartbeat_file(tmp_path, 1).exists())
        run.step(1.0)
    assert [event["probe"] for event in events(tmp_path, "probe-failed")] == ["heartbeats"]
    assert read_heartbeats(tmp_path)[0][1].ended


@pytest.mark.usefixtures("rank_one")
def test_a_forked_child_has_no_watchdog(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path, stall_seconds=1000) as run:
        until(lambda: heartbeat_file(tmp_path, 1).exists())
        before = heartbeat_file(tmp_path, 1).read_bytes()
        child = os.fork()
        if child == 0:
            run.close()  # not its run
            os._exit(len([thread for thread in beat_threads() if thread.is_alive()]))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert heartbeat_file(tmp_path, 1).read_bytes() == before


@pytest.mark.usefixtures("rank_one")
def test_the_phases_of_a_step(tmp_path: Path) -> None:
    """Seen from inside of each phase, with two micro-batches and a validation."""
    seen: list[str | None] = []
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with steadyrun.record(tmp_path, every=1000) as run:
        run.watch(model, optimizer, monitor=False)
        clock = run._watchdog.clock  # type: ignore[union-attr]

        def look(*_given: object) -> None:
            seen.append(clock.now[1])

        model[1].register_forward_hook(look)
        model[1].weight.register_hook(look)
        for _ in range(3):
            seen.clear()
            look()
            for _ in range(2):
                model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            look()
            optimizer.zero_grad()
            run.step(1.0)
            look()
            with torch.no_grad():
                model(torch.ones(2, 4))
            run.val(1.0)
            look()
    passes = ["forward", "backward"] * 2
    assert seen == ["data", *passes, "update", "data", "validation", "data"]
    view = steadyrun.open_run(tmp_path)
    for name in ("time/data", "time/forward", "time/backward", "time/update", "time/busy"):
        assert len(view.series(name, 1)) == 3, name
        assert (view.series(name, 1).values >= 0).all()
    assert torch.autograd.backward.__module__ == "torch.autograd"


def test_the_clock_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds go to the phase that they belong to; after a backward pass the next mark decides."""
    now = [0.0]
    monkeypatch.setattr(step_clock.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(step_clock.time, "thread_time", lambda: now[0] / 2)
    clock = StepClock(0)
    clock.busy_counts = clock.forward_is_seen = True

    def go(seconds: float, mark: str) -> None:
        now[0] += seconds
        clock.mark(mark)

    clock.step_begins(1)
    go(1, "forward")
    go(2, "backward")
    go(4, "backward-ended")
    go(8, "forward")  # the data of the next micro-batch
    go(16, "backward")
    go(32, "backward-ended")
    go(64, "update")  # clipping
    now[0] += 128
    expected = {"time/data": 9, "time/forward": 18, "time/backward": 100, "time/update": 128, "time/busy": 59}
    assert clock.step_ends() == expected
    clock.step_begins(2)
    assert clock.now == (2, "data", 255.0)
    assert clock.longest == 255
    go(1, "backward")  # no forward pass was seen: the model is compiled
    assert set(clock.step_ends()) == {"time/backward", "time/busy"}


def test_the_limit_of_a_stall(tmp_path: Path) -> None:
    """Ten times the longest of the last steps, at least 30 s; ten minutes for validations and the first steps."""
    watched = Watchdog(steadyrun.store.writer.RunWriter(tmp_path, 1), 2, 0, None, lambda *_: None)
    try:
        assert watched.limit == 600
        for step in range(5):
            watched.clock.step_begins(step)
        assert watched.limit == 30
        watched.clock._durations.append(7.0)
        assert watched.limit == 70
        watched.clock.mark("validation")
        assert watched.limit == 600
    finally:
        watched.close(failed=False)


@pytest.mark.parametrize(
    ("failure", "cause", "operation"),
    [
        (RuntimeError("[gloo/pair.cc:553] Connection closed by peer [10.0.0.2]:1. GLHF!"), "connection", "backward"),
        (
            RuntimeError("[gloo/unbound_buffer.cc:78] Timed out waiting 4000ms for recv operation"),
            "timeout",
            "backward",
        ),
        (
            RuntimeError("[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE)"),
            "timeout",
            "ALLREDUCE",
        ),
        (torch.distributed.DistBackendError("NCCL error in: x.cpp:1, unhandled system error"), "nccl", "backward"),
        (torch.distributed.DistBackendError("NCCL error: remote process exited"), "connection", "backward"),
        (torch.distributed.DistStoreError("wait timeout after 300000ms"), "timeout", "backward"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "out-of-memory", "backward"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to"), "out-of-memory", "backward"),
        (MemoryError(), "out-of-memory", "backward"),
        (ConnectionResetError("Connection reset by peer"), "other", "backward"),  # of the program's own socket
        (ValueError("the NCCL connection closed"), "other", "backward"),
    ],
)
def test_causes_of_failures(failure: Exception, cause: str, operation: str) -> None:
    described = describe_failure(failure, "backward")
    assert (described["cause"], described["operation"]) == (cause, operation)
    assert described["type"] == type(failure).__name__
    assert described["message"]


@pytest.mark.usefixtures("rank_one")
def test_a_failure_is_an_event_with_its_step(tmp_path: Path) -> None:
    manifest(tmp_path)
    with pytest.raises(ValueError, match="bad label"), steadyrun.record(tmp_path) as run:
        run.step(1.0)
        raise ValueError("bad label")
    (failure,) = events(tmp_path, "process-failed")
    assert (failure["step"], failure["cause"], failure["message"]) == (1, "other", "bad label")
    with pytest.raises(KeyboardInterrupt), steadyrun.record(tmp_path) as run:
        raise KeyboardInterrupt
    assert len(events(tmp_path, "process-failed")) == 1


@pytest.mark.parametrize("seconds", [0, -1, True, "30", float("nan")])
def test_stall_seconds_must_be_a_number(tmp_path: Path, seconds: Any) -> None:
    with pytest.raises(steadyrun.UsageError, match="stall_seconds must be a number above 0"):
        steadyrun.record(tmp_path, stall_seconds=seconds)
