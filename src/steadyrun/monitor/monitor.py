"""Walks the trees over the run directory while it grows; announces faults when they are certain, and suspects."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from steadyrun.errors import FaultFound
from steadyrun.questions.form import FAULT, STANDING, SUSPECT
from steadyrun.records import Found
from steadyrun.report.limits import changes
from steadyrun.report.report import Report, check_with
from steadyrun.store.writer import RunWriter
from steadyrun.trees.walker import Asked

# When the monitor looks: soon at first, later no more often than its share of the run's time allows.
SHARE = 0.005  # of the time since the start that looking may take
_AT_ONCE = 0.1  # seconds that it may take in any case: a few looks in the first hundreds of steps
_FIRST = 50  # steps
_MOST_APART = 500  # steps, where time allows


class LookPace:
    """Keeps to the budget. Asked after every step, so `due` is two comparisons."""

    def __init__(self, now: float, turn: int) -> None:
        self._start, self._base = now, turn
        self._next_turn = turn + _FIRST
        self._next_time = now
        self._spent = 0.0

    def due(self, now: float, turn: int) -> bool:
        return turn >= self._next_turn and now >= self._next_time

    def looked(self, began: float, ended: float, turn: int) -> None:
        """After a look: the next one when the run is twice as old, or 500 steps on, and the budget has room for it."""
        took = ended - began
        self._spent += took
        self._next_turn = turn + min(max(_FIRST, turn - self._base), _MOST_APART)
        self._next_time = self._start + max(0.0, self._spent + took - _AT_ONCE) / SHARE


STOP = "stop"

OnFault = Callable[[Found], object]


class Monitor:
    """Looks at the run through its own files, as anyone could; it changes nothing but the event log."""

    def __init__(
        self,
        writer: RunWriter,
        on_fault: OnFault | str | None,
        *,
        turn: int,
        say: Callable[[str], None],
        problem: Callable[[str, Exception, str], None],
        on_finding: Callable[[Found], None] = lambda _: None,
        on_suspect: OnFault | str | None = None,
    ) -> None:
        self._writer = writer
        self.on_fault, self.on_suspect = on_fault, on_suspect
        self._say, self._problem, self._on_finding = say, problem, on_finding
        self._pace = LookPace(time.perf_counter(), turn)
        self._changes = changes({}, Path.cwd())
        self._announced: set[tuple[str, str, bool]] = set()
        self._since: dict[tuple[str, str], int] = {}  # findings that may pass, and the step since which they stand
        self._alarm = False
        self.stop: FaultFound | None = None

    def saw(self, values: Mapping[str, float | None]) -> None:
        """Shown every row as it is stored: a loss that is not finite is looked into at once, and once."""
        loss = values.get("loss")
        if loss is not None and loss - loss != 0 and ("D1.3", FAULT, True) not in self._announced:
            self._alarm = True

    def due(self, now: float, turn: int) -> bool:
        return self._alarm or self._pace.due(now, turn)

    def look(self, step: int, turn: int) -> None:
        """Walk over what is on disk; record, print and hand over what is new."""
        self._alarm = False
        began = time.perf_counter()
        try:
            findings = self._findings(self._walk(), step)
        finally:
            self._pace.looked(began, time.perf_counter(), turn)
        self._announce([finding for finding in findings if _identity(finding) not in self._announced])

    def finish(self, step: int) -> None:
        """At the end of the run: what stands now is certain, and the verdict is written down."""
        report = self._walk()
        findings = [_finding(asked, step, certain=True) for asked in _grave(report)]
        self._announce([finding for finding in findings if _identity(finding) not in self._announced], ended=True)
        self._writer.event(
            "verdict",
            step,
            verdict=report.verdict,
            leaf=report.leaf.question.code if report.leaf is not None else None,
            headline=report.headline.question.code if report.headline is not None else None,
            faults=[finding.code for finding in findings if finding.grade == FAULT],
            suspects=[finding.code for finding in findings if finding.grade == SUSPECT],
        )

    def _walk(self) -> Report:
        return check_with(self._writer.root, self._changes, go_on=True)

    def _findings(self, report: Report, step: int) -> list[Found]:
        """What is certain already, and what may pass but has stood for long. A suspect is announced once it stands."""
        now = {(asked.question.code, asked.answer.kind): asked for asked in _grave(report)}
        passing = {key for key, asked in now.items() if _may_pass(asked)}
        self._since = {key: self._since.get(key, step) for key in passing}
        # Long enough, or as long as the run was old when it began: a run of 300 steps is not over before it is told.
        stands = {key for key, since in self._since.items() if step - since >= min(STANDING, max(1, since))}
        return [
            _finding(asked, step, certain=key not in passing or asked.answer.kind == SUSPECT)
            for key, asked in now.items()
            if key not in passing or key in stands
        ]

    def _announce(self, findings: list[Found], *, ended: bool = False) -> None:
        for finding in findings:
            self._announced.add(_identity(finding))
            fields = {key: value for key, value in asdict(finding).items() if key not in {"step", "certain", "grade"}}
            kind = finding.grade if finding.certain else "warning"
            self._writer.event(kind, finding.step, **fields)
        for grade in (FAULT, SUSPECT):
            if same := [finding for finding in findings if finding.grade == grade]:
                self._say(_line(same, self._writer.root))
        if certain := [finding for finding in findings if finding.certain and finding.grade == FAULT]:
            self._on_finding(certain[0])
        for finding in findings:
            answer = self._call(finding)
            if answer == STOP and self.stop is None and not ended:
                self.stop = FaultFound(finding)

    def _call(self, finding: Found) -> object:
        name, act = ("on_fault", self.on_fault) if finding.grade == FAULT else ("on_suspect", self.on_suspect)
        if act is None or isinstance(act, str):
            return act
        try:
            return act(finding)
        except Exception as problem:
            self._problem(f"the {name} callback", problem, "failed")
            return None


def _grave(report: Report) -> list[Asked]:
    """The faults and suspects. A sign that a fault or another suspect explains is not announced beside it."""
    grave = [asked for asked in report.walk.path if asked.answer.kind in {FAULT, SUSPECT}]
    causes = [asked for asked in grave if not asked.question.outcome(asked.answer.outcome).symptom]
    return [asked for asked in grave if asked.answer.kind == FAULT or not causes or asked in causes]


def _identity(finding: Found) -> tuple[str, str, bool]:
    return finding.code, finding.grade, finding.certain


def _may_pass(asked: Asked) -> bool:
    """Whether more training may undo this fault, or show it to be the symptom of another."""
    return bool(asked.answer.edge) or asked.answer.may_pass


def _finding(asked: Asked, noticed: int, *, certain: bool) -> Found:
    answer = asked.answer
    advice = answer.experiment if answer.kind == SUSPECT else answer.fix
    code = asked.question.code
    return Found(code, answer.outcome, answer.step, answer.message, advice, noticed, certain, answer.kind)


def _line(findings: list[Found], root: Path) -> str:
    """One line for all that one look found: the first in the order of the walk is the one to begin with."""
    first, others = findings[0], ", ".join(finding.code for finding in findings[1:])
    kind = first.grade if first.certain else "a fault if it stays so:"
    more = f" (also {others})" if others else ""
    return f"{kind} {first.code} {first.outcome}{more}: {first.message} Evidence and fix: steadyrun check {root}"
