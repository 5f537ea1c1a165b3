"""The monitor's process, as the training process sees it: asked by a line, heard without waiting, never missed.

It is started by `subprocess` (a fork would copy the training, multiprocessing's spawn would import the user's script
again), in isolated mode, with nothing of the user's on its path. It holds no file of the training process, and no
process that the training starts or forks holds an end of its pipes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import weakref
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadyrun.monitor.look import Look

# The same steadyrun as here, whichever is installed; no folder of the user's goes before the standard library.
_SERVE = """
import sys, importlib.util as util
spec = util.spec_from_file_location("steadyrun", sys.argv[1])
sys.modules["steadyrun"] = module = util.module_from_spec(spec)
spec.loader.exec_module(module)
sys.path += sys.argv[2:]
from steadyrun.monitor.look_server import serve
serve()
"""
_PYTHON = re.compile(r"(python|pypy)[\d.]*[a-z]?(\.exe)?", re.IGNORECASE)  # not a program that embeds Python
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_OURS = Path(__file__).resolve().parents[1] / "__init__.py"
_PIECE = 65_536
_PAUSE = 0.002  # seconds between two looks for an answer, when there is nothing else to do
_GOODBYE = 1.0  # seconds to wait for a process that was killed


class CannotStartError(Exception):
    """A process cannot be started here."""


class ProcessEndedError(Exception):
    """The process has ended by itself, or was ended by another."""


@dataclass(frozen=True)
class Answer:
    """What the process found, or why it could not look; and the CPU time that the look took it."""

    number: int
    look: Look | None
    problem: str
    cpu: float


class LookProcess:
    """One process for one run."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._process, self._requests, self._answers = _started()
        self._received = b""
        self._asked = 0
        _alive.add(self)
        try:
            self._send({"root": str(root), "folder": str(folder), "parent": os.getpid()})
        except ProcessEndedError:
            self.close()
            raise

    def ask(self) -> int:
        """Have it look; the number of the request."""
        self._asked += 1
        self._send({"number": self._asked})
        return self._asked

    def answer(self) -> Answer | None:
        """The next answer if it is here already."""
        while b"\n" not in self._received:
            try:
                piece = os.read(self._answers, _PIECE)
            except BlockingIOError:
                return None
            except OSError as problem:
                raise ProcessEndedError(str(problem)) from problem
            if not piece:
                raise ProcessEndedError(self._how())
            self._received += piece
        line, _, self._received = self._received.partition(b"\n")
        return _parsed(line)

    def wait(self, number: int, seconds: float) -> Answer | None:
        """The answer to this request, if it comes in time."""
        until = time.monotonic() + seconds
        while True:
            answer = self.answer()
            if answer is not None and answer.number >= number:
                return answer
            if time.monotonic() >= until:
                return None
            time.sleep(_PAUSE)

    def close(self) -> None:
        """End it at once: it holds nothing that could be lost."""
        _alive.discard(self)
        with suppress(OSError):
            self._process.kill()
        try:
            self._process.wait(_GOODBYE)
        except subprocess.TimeoutExpired:
            _dying.append(self._process)
        self._let_go()

    def disown(self) -> None:
        """In a forked child of the training: the process is its parent's."""
        self._process.returncode = 0
        self._let_go()

    def _let_go(self) -> None:
        for descriptor in (self._requests, self._answers):
            with suppress(OSError):
                os.close(descriptor)
        self._requests = self._answers = -1

    def _send(self, content: dict[str, Any]) -> None:
        try:
            os.write(self._requests, json.dumps(content).encode() + b"\n")
        except OSError as problem:
            raise ProcessEndedError(self._how()) from problem

    def _how(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GOODBYE)
        code = self._process.returncode
        if code is None:
            return "it closed its output"
        return f"it was killed (signal {-code})" if code < 0 else f"it exited (code {code})"


_alive: weakref.WeakSet[LookProcess] = weakref.WeakSet()
_dying: list[subprocess.Popen[bytes]] = []  # killed, but on a busy machine not dead yet; collected at the next start


def _disown_all() -> None:
    for process in list(_alive):
        process.disown()
    _alive.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)


def _started() -> tuple[subprocess.Popen[bytes], int, int]:
    """The process, and our ends of its pipes."""
    if getattr(sys, "frozen", False) or not _PYTHON.fullmatch(Path(sys.executable or "").name):
        raise CannotStartError(f"{sys.executable!r} is not a Python interpreter")
    _dying[:] = [process for process in _dying if process.poll() is None]
    descriptors: list[int] = []
    try:
        theirs_in, requests = _pipe(descriptors)
        answers, theirs_out = _pipe(descriptors)
        os.set_blocking(answers, False)
        process = subprocess.Popen(
            _command(),
            stdin=theirs_in,
            stdout=theirs_out,
            stderr=subprocess.DEVNULL,
            cwd=Path(sys.executable).anchor or None,
            env={**os.environ, **_ONE_THREAD},
            creationflags=getattr(subprocess, "IDLE_PRIORITY_CLASS", 0) | getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
    except (OSError, ValueError, AttributeError, subprocess.SubprocessError) as problem:
        for descriptor in descriptors:
            os.close(descriptor)
        raise CannotStartError(f"{type(problem).__name__}: {problem}") from problem
    os.close(theirs_in)
    os.close(theirs_out)
    return process, requests, answers


def _command() -> list[str]:
    import numpy
    import pyarrow

    options = ["-I", *(["-B"] if sys.dont_write_bytecode else [])]
    if sys.pycache_prefix is not None:
        options += ["-X", f"pycache_prefix={sys.pycache_prefix}"]
    packages = [Path(str(module.__file__)).resolve().parents[1] for module in (numpy, pyarrow)]
    return [sys.executable, *options, "-c", _SERVE, str(_OURS), *dict.fromkeys(map(str, packages))]


def _pipe(descriptors: list[int]) -> tuple[int, int]:
    """A pipe that no other process inherits, and never with the number of a closed stdin, stdout or stderr."""
    ends = os.pipe()
    descriptors += ends
    if min(ends) > 2:
        return ends
    import fcntl

    moved = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3) for end in ends)
    for end in ends:
        os.close(end)
        descriptors.remove(end)
    descriptors += moved
    return moved[0], moved[1]


def _parsed(line: bytes) -> Answer:
    content = json.loads(line)
    look = Look.from_json(content["look"]) if "look" in content else None
    return Answer(content["number"], look, content.get("problem", ""), content["cpu"])
