"""What a script prints: it goes where it went before, and its numbers join the record.

`write` of `sys.stdout` and `sys.stderr` is replaced on the two objects themselves. So they stay what they are (a
terminal, a file, an encoding, an identity), and loggers, progress bars and redirections that hold one of them need not
know. What C code, child processes or `os.write` put on the same file descriptors is not seen.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from steadyrun.importers.live_lines import LiveLines
from steadyrun.scripts.patches import Patches
from steadyrun.scripts.printed_lines import LineSplitter, Redrawn, Tracebacks
from steadyrun.scripts.reported_values import Recorder, ReportedValues, values_of

_MOST_WAITING = 6_000  # pieces of text that wait to be read; the oldest are forgotten
_FRACTION = 0.005  # of the time since the start that reading may take
_HEAD_START = 0.05  # seconds, for the first lines
_OURS = "steadyrun: "


def attach(recorder: Recorder) -> Callable[[], None]:
    """Read what is printed from now on; the function that is returned ends it and reads what is left."""
    reading = _Reading(recorder, values_of(recorder))
    patches = Patches()

    def put_on() -> None:
        patches.remove()
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is not None and hasattr(stream, "__dict__"):
                patches.put(stream, "write", reading.of(name))

    put_on()
    recorder.on_end.append(reading.end)
    recorder.on_cell.append(put_on)  # IPython puts `write` back after each cell, to what it was before it

    def detach() -> None:
        patches.remove()
        recorder.on_cell.remove(put_on)
        recorder.on_end.remove(reading.end)
        reading.end()

    return detach


class _Reading:
    """Collects pieces of text and reads them in the thread that began, when there is time; a failure ends reading."""

    def __init__(self, recorder: Recorder, values: ReportedValues) -> None:
        self._recorder, self._values = recorder, values
        self._pieces: deque[tuple[str, str, int]] = deque(maxlen=_MOST_WAITING)
        self._splitters = {"stdout": LineSplitter(), "stderr": LineSplitter()}
        self._redrawn = {"stdout": Redrawn(), "stderr": Redrawn()}
        self._tracebacks = {"stdout": Tracebacks(), "stderr": Tracebacks()}
        self._readers = {"stdout": LiveLines(), "stderr": LiveLines()}
        self._process, self._thread = os.getpid(), threading.get_ident()
        self._began, self._spent = time.perf_counter(), 0.0
        self._busy = self._failed = False

    def of(self, stream: str) -> Callable[..., Any]:
        """What is called instead of a stream's `write`."""

        def write(original: Callable[..., Any], *args: Any, **options: Any) -> Any:
            written = original(*args, **options)
            if args and not self._failed:
                self._collect(stream, args[0])
            return written

        return write

    def end(self) -> None:
        """Read what is left: of the output, or of what was printed before a run ends."""
        if os.getpid() == self._process and not self._failed:
            self._contained(self._read_rest)

    def _collect(self, stream: str, text: object) -> None:
        if not isinstance(text, str) or os.getpid() != self._process or not self._recorder.active:
            return
        self._pieces.append((stream, text, self._recorder.step))
        if threading.get_ident() == self._thread and not self._busy and ("\n" in text or "\r" in text):
            allowed = _HEAD_START + _FRACTION * (time.perf_counter() - self._began)
            if self._spent < allowed:
                self._contained(self._read)

    def _contained(self, read: Callable[[], None]) -> None:
        """No error of ours gets into the script's `print`."""
        began = time.perf_counter()
        self._busy = True
        try:
            read()
        except Exception as problem:
            self._failed = True
            self._pieces.clear()
            self._recorder.note(f"The printed output is not read any more: {type(problem).__name__}: {problem}")
        finally:
            self._busy = False
            self._spent += time.perf_counter() - began

    def _read(self) -> None:
        while self._pieces:
            stream, text, step = self._pieces.popleft()
            for line, at in self._splitters[stream].lines(text, step):
                self._take(stream, line, at)

    def _read_rest(self) -> None:
        self._read()
        for stream, splitter in self._splitters.items():
            for line, at in splitter.ended():
                self._take(stream, line, at)
            for row, at in self._readers[stream].ended():
                self._values.take(self._redrawn[stream].new(row, splitter.redraws), at, stream, deliberate=False)
        self._values.settle()

    def _take(self, stream: str, line: str, step: int) -> None:
        if line.startswith(_OURS) or self._tracebacks[stream].hold(line):
            return
        redraws = self._splitters[stream].redraws
        for row, at in self._readers[stream].values(line, step):
            self._values.take(self._redrawn[stream].new(row, redraws), at, stream, deliberate=False)
