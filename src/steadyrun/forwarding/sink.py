"""Forwarders: their common interface, and one thread for each. Training never waits for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadyrun.forwarding.outgoing_text import FINDINGS, trouble
from steadyrun.probes.problems import say
from steadyrun.records import Event
from steadyrun.store.jsonio import number
from steadyrun.store.layout import read_manifest
from steadyrun.store.tail import EventTail, RowTail, TableRow

# The common interface of trackers and alerts, and what they get from the run.


@dataclass(frozen=True)
class About:
    """The run as a sink sees it: `kept` is what it stored in an earlier attempt, `keep` stores for a later one."""

    root: Path
    config: dict[str, Any]
    attempt: int
    kept: str | None
    keep: Callable[[str], None]


class Sink:
    """One forwarder.

    All calls come from its own thread. A call may raise (then it is repeated, so it must be idempotent), block, or
    never return.
    """

    name = ""

    def open(self, about: About) -> None:
        """Called first."""

    def seam(self, step: int) -> None:
        """This attempt continues at `step`: later steps of an earlier attempt are obsolete."""

    def scalars(self, row: TableRow) -> None:
        """Take the values of a step."""

    def finding(self, event: Event) -> None:
        """Take a finding; see `outgoing_text.FINDINGS`."""

    def flush(self) -> None:
        """Everything new was handed over: send what is buffered. Also called without news."""

    def close(self, state: str) -> None:
        """The run has ended in this state, and everything was handed over."""


class Own(Sink):
    """A user's own object with `scalars(step, values)`, `finding(event)` and optionally `close()`."""

    def __init__(self, given: Any) -> None:
        self._given = given
        self.name = f"your {type(given).__name__}"

    def scalars(self, row: TableRow) -> None:
        self._given.scalars(row.step, row.values)

    def finding(self, event: Event) -> None:
        self._given.finding(event)

    def close(self, state: str) -> None:  # noqa: ARG002
        if callable(close := getattr(self._given, "close", None)):
            close()


# One thread per forwarder: it follows the run's files and hands over what is new; training never waits for it.


SHARE = 0.1  # fraction of a core while the run continues
_AT_ONCE = 0.01  # seconds of work before a pause: the training loop shares the interpreter


class WorkPace:
    """Measures the work of its thread and returns how long to pause. Waiting for a network does not count."""

    def __init__(self) -> None:
        self._since = time.thread_time()

    def rest(self, at_least: float = _AT_ONCE) -> float:
        """Seconds to pause for the work since the last pause; 0 if that was less than `at_least`."""
        now = time.thread_time()
        spent = now - self._since
        if spent < at_least:
            return 0.0
        self._since = now
        return spent * (1 / SHARE - 1)


_LOOK = 0.5  # seconds between two polls
_AGAIN, _LONGEST = 1.0, 256.0  # seconds before a retry: initial and maximum
_TRIES_AT_THE_END = 3

Tell = Callable[..., None]  # writes an event


class _Ended(Exception):  # noqa: N818  not an error: nobody wants it any more, or it failed too often
    pass


class Follower:
    """Hands rows and events to a sink until the run ends, the sink is disabled, or the wait is over."""

    def __init__(self, sink: Sink, about: About, events: EventTail, rows: RowTail | None, wait: float, tell: Tell):
        self._sink, self._about, self._wait, self._tell = sink, about, wait, tell
        self._events, self._rows = events, rows
        self._begun = False
        self._sent: int | None = None  # the last step handed over
        self._closing, self._abandoned, self._done = threading.Event(), threading.Event(), threading.Event()
        self._said = False
        self._failed = False
        self._lock = threading.Lock()
        threading.Thread(target=self._work, name=f"steadyrun-to-{sink.name}", daemon=True).start()

    def ending(self) -> float:
        """The run has ended and is on disk; return the deadline (monotonic) for the rest."""
        self._closing.set()
        return time.monotonic() + self._wait

    def finish(self, until: float) -> None:
        """Wait for the thread until the deadline; after that it stops on its own."""
        if self._done.wait(max(0.0, until - time.monotonic())):
            return
        self._abandoned.set()
        self._fail(f"it was not finished {self._wait:g} s after the end of the run")

    # -- in the thread -----------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            self._follow()
        except _Ended:
            pass
        except BaseException as problem:  # a tracker that tries to exit the program ends only its own thread
            self._fail(trouble(problem))
        finally:
            self._done.set()

    def _follow(self) -> None:
        pace = WorkPace()
        self._do(lambda: self._sink.open(self._about))
        while True:
            last = self._closing.is_set()  # read before the poll, so that this poll sees everything
            self._look(pace, last)
            if last:
                break
            self._closing.wait(max(_LOOK, pace.rest(0.0)))
        state = str(read_manifest(self._about.root).get("state"))
        self._do(lambda: self._sink.close(state))

    def _look(self, pace: WorkPace, last: bool) -> None:
        try:
            self._hand_on(pace, last)
        except OSError as problem:  # the file may be readable later
            if last:
                raise
            self._complain(trouble(problem))
        self._do(self._sink.flush)

    def _hand_on(self, pace: WorkPace, last: bool) -> None:
        self._hand_events()
        if self._rows is not None and (self._begun or last):
            for row in self._rows.new():
                self._hand_row(row)
                if rest := pace.rest():
                    self._closing.wait(rest)
                    self._hand_events()  # findings do not wait for the rows

    def _hand_events(self) -> None:
        for event in self._events.new():
            self._hand_event(event)

    def _hand_event(self, event: Event) -> None:
        if event.kind in {"start", "resume"}:
            self._begun = True
        if event.kind == "resume" and (step := event.step) is not None:
            self._do(lambda: self._sink.seam(step))
        elif event.kind == "validation" and self._rows is not None and event.step is not None:
            values = {name: number(value) for name, value in event.fields.get("values", {}).items()}
            self._hand_row(TableRow("validation", event.step, event.time, values))
        elif event.kind in FINDINGS:
            self._do(lambda: self._sink.finding(event))

    def _hand_row(self, row: TableRow) -> None:
        self._do(lambda: self._sink.scalars(row))
        self._sent = row.step

    def _do(self, action: Callable[[], None]) -> None:
        """Call it, and retry if it fails: as long as the run continues, and a few times at its end."""
        delay, left = _AGAIN, _TRIES_AT_THE_END
        while not self._abandoned.is_set():
            ending = self._closing.is_set()
            left -= ending
            try:
                return action()
            except Exception as problem:
                if not left:
                    self._fail(trouble(problem))
                if not left or self._abandoned.is_set():
                    raise _Ended from None
                self._complain(trouble(problem))
            (self._abandoned if ending else self._closing).wait(_AGAIN if ending else delay)
            delay = min(4 * delay, _LONGEST)
        raise _Ended

    def _complain(self, why: str) -> None:
        if not self._said:
            self._said = True
            say(f"{self._sink.name} failed: {why}. Retrying (printed once). Training is not affected.")
            self._tell("forward-trouble", self._sent, to=self._sink.name, why=why)

    def _fail(self, why: str) -> None:
        """Disable the sink, with one line and one event."""
        with self._lock:
            if self._failed or self._done.is_set():
                return
            self._failed = True  # `_done` is set only after the report
        sent = "nothing was" if self._sent is None else f"steps up to {self._sent} were"
        what = f"; {sent} sent there" if self._rows is not None else ""
        say(f"{self._sink.name} stopped: {why}{what}. The run directory has everything, and training is not affected.")
        self._tell("forward-failed", self._sent, to=self._sink.name, why=why)
