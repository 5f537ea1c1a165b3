"""The monitor's process on real processes: what it finds, and how it ends."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steadyrun
from steadyrun.monitor import look_process
from steadyrun.monitor import monitor as monitoring
from steadyrun.monitor.look_process import Answer, LookProcess
from steadyrun.monitor.monitor import Monitor
from steadyrun.store.writer import RunWriter

LINUX = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks /proc")
SOURCES = Path(steadyrun.__file__).parents[1]

# A run whose looks are all taken by the process; its loss breaks when a file named `break` appears.
PROGRAM = f"""
import sys; sys.path.insert(0, {str(SOURCES)!r})
import os, time
from pathlib import Path
from typing import Any
import steadyrun
from steadyrun.monitor import monitor
monitor.OLD_ENOUGH = 0.0
monitor._accelerated = lambda: True
folder = Path(sys.argv[1])
(folder / "parent").write_text(str(os.getpid()))
found = []
with steadyrun.record(folder / "run") as run:
    run.monitor(on_fault=found.append)
    asked = run._flusher._monitor
    for step in range(100_000):
        broken = (folder / "break").exists()
        run.step(float("nan") if broken else 1.0 + 1.0 / (1 + step))
        if asked._process is not None and not (folder / str(asked._process._process.pid)).exists():
            (folder / str(asked._process._process.pid)).touch()
        if found or (folder / "end").exists():
            break
        time.sleep(0.005)
        EXTRA
(folder / "found").write_text("\\n".join(f"{{one.code}} {{one.noticed <= step}}" for one in found))
try:
    os.waitpid(-1, 0)
except ChildProcessError:
    (folder / "childless").touch()
"""


@contextmanager
def started(folder: Path, extra: str = "", *options: str, **more: object) -> Iterator[subprocess.Popen[bytes]]:
    (folder / "program.py").write_text(PROGRAM.replace("EXTRA", extra))
    command = [sys.executable, *options, str(folder / "program.py"), str(folder)]
    process = subprocess.Popen(command, **{"stderr": subprocess.DEVNULL, **more})  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 300  # a hang ends the test; the process has the lowest priority on a busy machine
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def looking(folder: Path) -> list[int]:
    """The processes that the run has started for its looks."""
    return [int(path.name) for path in folder.iterdir() if path.name.isdigit()]


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text("ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def ended(run: Path) -> list[str]:
    return [event.fields["why"] for event in steadyrun.open_run(run).events("monitor-ended")]


def found_by_process(folder: Path) -> None:
    """The program has ended, reported its fault while it ran, and left no process behind."""
    assert (folder / "found").read_text().splitlines() == ["D1.3 True"]
    assert (folder / "childless").exists()
    view = steadyrun.open_run(folder / "run")
    assert [event.fields["code"] for event in view.events("fault")] == ["D1.3"]
    assert [event.fields["verdict"] for event in view.events("verdict")] == ["fault"]
    leaf = steadyrun.check(folder / "run").leaf
    assert leaf is not None
    assert leaf.question.code == "D1.3"


@LINUX
def test_what_the_process_finds_reaches_the_callback(tmp_path: Path) -> None:
    with started(tmp_path) as program:
        until(lambda: looking(tmp_path))
        assert looking(tmp_path) != [program.pid]
        (tmp_path / "break").touch()
        assert program.wait(300) == 0
    found_by_process(tmp_path)
    assert len(looking(tmp_path)) == 1
    assert ended(tmp_path / "run") == []
    assert not any(map(is_alive, looking(tmp_path)))


@LINUX
def test_it_ends_with_a_training_that_is_killed(tmp_path: Path) -> None:
    with started(tmp_path) as program:
        until(lambda: looking(tmp_path))
        [process] = looking(tmp_path)
        assert is_alive(process)
        program.send_signal(signal.SIGKILL)
        until(lambda: not is_alive(process))


@LINUX
def test_a_forked_worker_that_outlives_the_training_does_not_keep_it(tmp_path: Path) -> None:
    worker = "step == 99 and not os.fork() and ((folder / 'forked').write_text(str(os.getpid())), time.sleep(60))"
    with started(tmp_path, worker) as program:
        until(lambda: (tmp_path / "forked").exists() and int((tmp_path / "forked").read_text() or 0))
        [process], worker_process = looking(tmp_path), int((tmp_path / "forked").read_text())
        program.send_signal(signal.SIGKILL)
        until(lambda: not is_alive(process))
        assert is_alive(worker_process)
        os.kill(worker_process, signal.SIGKILL)


@LINUX
def test_its_death_costs_one_line(tmp_path: Path) -> None:
    with started(tmp_path) as program:
        until(lambda: looking(tmp_path))
        [first] = looking(tmp_path)
        os.kill(first, signal.SIGKILL)
        until(lambda: len(looking(tmp_path)) == 2)
        assert program.poll() is None
        (tmp_path / "break").touch()
        assert program.wait(300) == 0
    found_by_process(tmp_path)
    assert ended(tmp_path / "run") == [
        "the monitor's process has ended: it was killed (signal 9); the next look starts another"
    ]


@LINUX
@pytest.mark.parametrize(
    ("options", "extra"),
    [
        (["-I"], ""),
        ([], "step == 5 and [os.close(n) for n in (0, 1)]"),
        ([], "step == 5 and (os.mkdir(folder / 'gone'), os.chdir(folder / 'gone'), os.rmdir(folder / 'gone'))"),
        (["-W", "error"], "step == 5 and os.environ.update(PYTHONHOME='/nowhere', PYTHONPATH='/nowhere')"),
    ],
)
def test_it_works_in_odd_places(tmp_path: Path, options: list[str], extra: str) -> None:
    with started(tmp_path, extra, *options) as program:
        until(lambda: looking(tmp_path))
        (tmp_path / "break").touch()
        assert program.wait(300) == 0
    found_by_process(tmp_path)
    assert ended(tmp_path / "run") == []


@pytest.mark.parametrize("executable", ["", None, "/opt/blender/blender", "/nowhere/python3"])
def test_where_no_process_can_be_started_the_training_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executable: str | None
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(monitoring, "OLD_ENOUGH", 0.0)
    monkeypatch.setattr(monitoring, "_accelerated", lambda: True)
    found: list[steadyrun.Found] = []
    with steadyrun.record(tmp_path / "run") as run:
        run.monitor(on_fault=found.append)
        for step in range(300):
            run.step(float("nan") if step >= 200 else 1.0)
    assert [(one.code, one.step) for one in found] == [("D1.3", 200)]
    assert found[0].noticed < 300
    assert ended(tmp_path / "run") == []


def test_a_frozen_program_does_not_start_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr("steadyrun.monitor.look_process._command", lambda: pytest.fail("it started itself"))
    monkeypatch.setattr(monitoring, "_accelerated", lambda: True)
    with steadyrun.record(tmp_path / "run") as run:
        run.monitor()
        run._flusher._monitor.look(0, 0)  # type: ignore[union-attr]
        run.step(1.0)
    assert steadyrun.open_run(tmp_path / "run").events("verdict")


@pytest.mark.parametrize(("given", "looks"), [({}, 0), ({"on_fault": print}, 1), ({"on_suspect": print}, 1)])
def test_a_short_run_is_looked_at_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], looks: int
) -> None:
    monkeypatch.setattr("steadyrun.monitor.look_process._command", lambda: pytest.fail("it started a process"))
    seen: list[int] = []
    look_here = Monitor._look_here
    monkeypatch.setattr(Monitor, "_look_here", lambda self, *at: (seen.append(at[0]), look_here(self, *at)))
    with steadyrun.record(tmp_path / "run") as run:
        run.monitor(**given)
        for _ in range(99):
            run.step(1.0)
        assert len(seen) == looks
    assert steadyrun.open_run(tmp_path / "run").events("verdict")


def open_files(process: int | str = "self") -> list[Path]:
    """What a process has open; nothing on a system that does not say."""
    folder, files = Path(f"/proc/{process}/fd"), []
    for link in folder.iterdir() if folder.exists() else ():
        with suppress(FileNotFoundError):  # the folder's own
            files.append(link.readlink())
    return sorted(files)


def monitor_of(root: Path) -> Monitor:
    return Monitor(RunWriter(root), None, turn=0, say=lambda _: None, problem=lambda *_: None)


def test_closing_does_not_wait_for_a_look_that_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitoring, "_LAST_SECONDS", 0.05)
    monkeypatch.setattr(LookProcess, "answer", lambda _: None)
    monitor = monitor_of(tmp_path)
    monitor._ask(10, 10)
    monkeypatch.setattr(monitor._looker, "look", lambda: pytest.fail("the training process looked as well"))
    monitor.finish(11)
    monitor.close()
    view = steadyrun.open_run(tmp_path)
    assert view.events("verdict") == []
    [event] = view.events("not-recorded")
    assert "steadyrun check" in event.fields["why"]


def test_the_last_look_is_not_an_older_one(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path / "run") as run:
        run.step(1.0)
    process = LookProcess(tmp_path / "run", tmp_path)
    try:
        process.ask()
        answer = process.wait(process.ask(), 60)
    finally:
        process.close()
    assert isinstance(answer, Answer)
    assert answer.number == 2
    assert answer.look is not None
    assert answer.look.verdict == steadyrun.check(tmp_path / "run").verdict


def test_a_look_that_fails_is_reported_once_and_training_goes_on(tmp_path: Path) -> None:
    process = LookProcess(tmp_path / "nothing", tmp_path)
    try:
        answer = process.wait(process.ask(), 60)
    finally:
        process.close()
    assert answer is not None
    assert answer.look is None
    assert answer.problem.startswith("RunDirectoryError")


def test_nothing_of_the_training_is_touched(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path / "run") as run:
        run.step(1.0)
    before = (random.getstate(), repr(np.random.get_state()), sys.excepthook, sys.stdin, sys.stdout, dict(os.environ))
    files = open_files()
    process = LookProcess(tmp_path / "run", tmp_path)
    process.wait(process.ask(), 60)
    process.close()
    assert before == (
        random.getstate(),
        repr(np.random.get_state()),
        sys.excepthook,
        sys.stdin,
        sys.stdout,
        dict(os.environ),
    )
    assert open_files() == files


@LINUX
def test_it_loads_no_torch_and_has_the_lowest_priority(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path / "run") as run:
        run.step(1.0)
    process = LookProcess(tmp_path / "run", tmp_path)
    try:
        process.wait(process.ask(), 60)
        number = process._process.pid
        assert "torch" not in Path(f"/proc/{number}/maps").read_text()
        assert os.getpriority(os.PRIO_PROCESS, number) == 19
        assert not [path for path in open_files(number) if tmp_path in path.parents]
    finally:
        process.close()


def test_recording_loads_no_question_and_no_pandas(tmp_path: Path) -> None:
    """A module of that name is there to be found; pyarrow imports it when it converts a list."""
    (tmp_path / "pandas.py").write_text("raise RuntimeError('pandas was imported')")
    program = f"""
import sys; sys.path[:0] = [{str(SOURCES)!r}, {str(tmp_path)!r}]
import torch, steadyrun
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss_fn = lambda model, batch: model(batch).square().mean()
with steadyrun.record({str(tmp_path / "run")!r}) as run:
    run.watch(model, optimizer, loss_fn=loss_fn)
    for step in range(30):
        batch = torch.randn(8, 4)
        loss = loss_fn(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        run.step(loss, batch=batch)
    run.flush()
    for name in ("steadyrun.report", "steadyrun.trees", "steadyrun.panels", "steadyrun.preflight", "pandas"):
        assert not [module for module in sys.modules if module == name or module.startswith(name + ".")], name
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_killed_process_that_dies_slowly_is_collected_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else Python warns about it at a moment of its own."""

    def too_slow(seconds: float) -> None:
        raise subprocess.TimeoutExpired("", seconds)

    first = LookProcess(tmp_path, tmp_path)
    child = first._process
    with monkeypatch.context() as patched:
        patched.setattr(child, "wait", too_slow)
        first.close()
    assert child in look_process._dying
    child.wait()
    LookProcess(tmp_path, tmp_path).close()
    assert child not in look_process._dying
