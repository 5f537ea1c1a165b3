"""A run followed while it is written: its dashboard, rebuilt when there is new data."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

from steadyrun.panels.board import BUILDERS, build
from steadyrun.panels.panel import Board, Panel
from steadyrun.panels.thinning import Lens, through
from steadyrun.report.report import Report, reported
from steadyrun.signals.run_signals import Signals
from steadyrun.store.layout import ENDED
from steadyrun.store.tail import TailView
from steadyrun.store.trial_record import TrialRecord, trial_record
from steadyrun.trees.walker import Changes

_IDLE = 9.0  # factor on the duration of a check to wait before the next: a tenth of a core
_SOONEST = 1.0  # seconds between two checks
_NEW = 1000  # steps that are drawn without thinning before lines are thinned again
_AGED = 5.0  # seconds after which the ages of heartbeats are shown again, also if nothing is written


class Watch:
    """Follows one run; safe to use from several threads, one at a time."""

    def __init__(self, root: Path, name: str, changes: Changes | None = None) -> None:
        self._view = TailView(root)
        self._name = name
        self._changes = changes or {}
        self._lock = threading.Lock()
        self._signals: Signals | None = None
        self._report: Report | None = None
        self._trial: TrialRecord | None = None
        self._walked_new = False  # whether the report covers the newest data
        self._next_walk = 0.0
        self._thinned_until: int | None = None
        self._built = 0.0

    @property
    def manifest(self) -> dict[str, object]:
        """The current manifest."""
        return self._view.manifest

    @property
    def state(self) -> str:
        """The run's state at the last look."""
        return "" if self._report is None else self._report.state

    def look(self) -> Board | None:
        """The current dashboard; None if nothing is new."""
        with self._lock:
            changed = self._view.look() or self._aged
            if self._report is not None and not changed and (self._walked_new or not self._may_walk()):
                return None
            return self._board(changed)

    def panel(self, number: int, first: float, last: float) -> Panel:
        """One panel over a range of steps, from all recorded points."""
        with self._lock:
            signals, report = self._seen()
            with through(Lens(first, last)):
                panel: Panel = BUILDERS[number - 1].build(signals, report)
            return panel

    def signals(self) -> Signals:
        """The data of the last look."""
        with self._lock:
            return self._seen()[0]

    def _seen(self) -> tuple[Signals, Report]:
        assert self._signals is not None, "look first"
        assert self._report is not None, "look first"
        return self._signals, self._report

    @property
    def _aged(self) -> bool:
        """Whether the ranks of a running job were shown a while ago: a dead job writes nothing that would show it."""
        several = self._signals is not None and self._signals.ranks is not None
        return several and self._view.state not in ENDED and time.monotonic() - self._built > _AGED

    def _may_walk(self) -> bool:
        return time.monotonic() >= self._next_walk or self._view.state in ENDED

    def _board(self, changed: bool) -> Board:
        if changed or self._signals is None:
            self._signals = Signals(self._view)
            self._trial = trial_record(self._view.root)
            self._walked_new = False
        last = self._last_step(self._signals)
        if not self._walked_new and (self._report is None or self._may_walk()):
            self._walk(self._signals, last)
        assert self._report is not None
        self._report = replace(
            self._report,
            state=self._view.state,
            last_step=last,
            damage=tuple(str(drop) for drop in self._view.dropped),
        )
        self._built = time.monotonic()
        with through(Lens(newer=self._new_after(last))):
            return build(self._signals, self._report, self._trial)

    def _last_step(self, signals: Signals) -> int | None:
        """The last step of the loss, because a resumed run may be behind its earlier attempt."""
        loss = signals.raw("loss") if signals.has("loss") else None
        return int(loss.steps[-1]) if loss is not None and len(loss) else self._view.last_step()

    def _walk(self, signals: Signals, last: int | None) -> None:
        began = time.monotonic()
        report = reported(self._name, self._view, signals, self._changes, go_on=True)
        ended = time.monotonic()
        self._report = replace(report, last_step=last)
        self._walked_new = True
        self._next_walk = ended + max(_SOONEST, _IDLE * (ended - began))

    def _new_after(self, last: int | None) -> float:
        """The step up to which lines are thinned; it stays for a while, so that a page only adds points."""
        newest = -1 if last is None else last
        if self._thinned_until is None or not 0 <= newest - self._thinned_until <= _NEW:
            self._thinned_until = newest
        return self._thinned_until
