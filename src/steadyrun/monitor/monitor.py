"""Walks the trees over the run directory while it grows; announces faults when they are certain, and suspects.

Looks are taken by a process at low priority (`look_process`), so that no step waits for one. It is asked when a look is
due. Its answer is heard after one of the next steps, in the training thread: there the events are written, the lines
printed and the callbacks called. To start it costs a quarter of a second, so a run of a few seconds is looked at once,
when it ends. Only a loss that is not finite, or a callback that waits for findings, has the first looks of a run on the
CPU taken here.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from steadyrun.errors import FaultFound, SteadyrunError
from steadyrun.monitor.look import Look, Looker, Sighting
from steadyrun.monitor.look_process import Answer, CannotStartError, LookProcess, ProcessEndedError
from steadyrun.questions.form import FAULT, STANDING, SUSPECT
from steadyrun.records import Found
from steadyrun.store.writer import RunWriter

# When the monitor looks: soon at first, later no more often than its part of the run's time allows.
SHARE = 0.005  # of the time since the start that looks in the training process may take
_AT_ONCE = 0.1  # seconds that they may take in any case: a few looks in the first hundreds of steps
_FIRST = 50  # steps
_MOST_APART = 500  # steps, where time allows
# A process takes a quarter of a second of another core to start, so a run that ends within seconds gets none.
OLD_ENOUGH = 10.0  # seconds
_ITS_SHARE = 0.01  # of the time since the start that its looks may take, in CPU time of another core
_ITS_START = 1.0  # seconds that they may take in any case
_MOST_PROCESSES = 3  # that a run starts, if they are ended by others
_HEAR_EVERY = 0.1  # seconds: asking a pipe lets other processes run, which takes milliseconds on a busy machine
# How long closing a run waits for the last look, which takes about a second. On a busy machine everything takes longer,
# and a long run may take a little longer to close.
_LAST_SECONDS, _LAST_SHARE = 5.0, 0.001


class LookPace:
    """Keeps to the budget. Asked after every step, so `due` is two comparisons."""

    def __init__(
        self, now: float, turn: int, *, wait: float = 0.0, share: float | None = None, at_once: float = _AT_ONCE
    ) -> None:
        self._start, self._base = now, turn
        self._share, self._at_once = share, at_once
        self._next_turn = turn + _FIRST
        self._next_time = now + wait
        self._spent = 0.0

    def due(self, now: float, turn: int) -> bool:
        return turn >= self._next_turn and now >= self._next_time

    def age(self, now: float) -> float:
        return now - self._start

    def looked(self, began: float, ended: float, turn: int) -> None:
        """After a look: the next one when the run is twice as old, or 500 steps on, and the budget has room for it."""
        took = ended - began
        self._spent += took
        self._next_turn = turn + min(max(_FIRST, turn - self._base), _MOST_APART)
        self._next_time = max(
            self._next_time, self._start + max(0.0, self._spent + took - self._at_once) / (self._share or SHARE)
        )


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
        self._its_pace = _pace_of_process(turn)
        self._folder = _working_folder(writer.root)
        self._looker = Looker(writer.root, self._folder)
        self._process: LookProcess | None = None
        self._processes = 0
        self._asked: tuple[int, int] | None = None  # step and turn of the look that is under way
        self._hear_next = 0.0
        self._its_time = 0.0  # CPU seconds of the last look
        self._announced: set[tuple[str, str, bool]] = set()
        self._since: dict[tuple[str, str], int] = {}  # findings that may pass, and the step since which they stand
        self._alarm = False
        self.stop: FaultFound | None = None

    def saw(self, values: Mapping[str, float | None]) -> None:
        """Shown every row as it is stored: a loss that is not finite is looked into at once, and once."""
        loss = values.get("loss")
        if loss is not None and loss - loss != 0 and ("D1.3", FAULT, True) not in self._announced:
            self._alarm = True

    def waiting(self, now: float) -> bool:
        """Whether a look is under way, whose answer may be there."""
        return self._asked is not None and now >= self._hear_next

    def due(self, now: float, turn: int) -> bool:
        if self._asked is not None:
            return False
        if self._alarm or (self._looks_here() and self._pace.due(now, turn)):
            return True
        return self._its_pace.due(now, turn) and self._may_start

    def look(self, step: int, turn: int) -> None:
        """Look at what is on disk, or have it looked at; record, print and hand over what is new."""
        alarm, self._alarm = self._alarm, False
        if self._looks_here(alarm) and (alarm or self._pace.due(time.perf_counter(), turn)):
            self._look_here(step, turn)
        else:
            self._ask(step, turn)

    def hear(self) -> None:
        """After a step while a look is under way: announce what it found, if it is done."""
        if self._asked is None or self._process is None:
            return
        self._hear_next = time.perf_counter() + _HEAR_EVERY
        (step, turn), answer = self._asked, None
        try:
            answer = self._process.answer()
        except ProcessEndedError as problem:
            self._ended(problem, step)
        if answer is not None:
            self._asked = None
            self._its_time = answer.cpu
            self._its_pace.looked(0.0, answer.cpu, turn)
            self._tell(_look_of(answer), step)

    def finish(self, step: int) -> None:
        """At the end of the run: what stands now is certain, and the verdict is written down."""
        if (look := self._last_look(step)) is None:
            return
        findings = [_finding(seen, step, certain=True) for seen in look.sightings]
        self._announce(self._new(findings, look), ended=True)
        self._writer.event(
            "verdict",
            step,
            verdict=look.verdict,
            leaf=look.leaf,
            headline=look.headline,
            words=look.words,
            faults=[finding.code for finding in findings if finding.grade == FAULT],
            suspects=[finding.code for finding in findings if finding.grade == SUSPECT],
        )

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.close()
        self._process = self._asked = None

    # -- here, or in a process of its own ---------------------------------------------------------------

    @property
    def _may_start(self) -> bool:
        return self._processes < _MOST_PROCESSES

    def _looks_here(self, alarm: bool = False) -> bool:
        """On the CPU until there is a process, if someone waits for what is found; always if none can be started.

        A step that waits lets an accelerator idle, and every other rank.
        """
        if not self._may_start:
            return True
        urgent = alarm or self.on_fault is not None or self.on_suspect is not None
        return urgent and self._process is None and not _accelerated()

    def _look_here(self, step: int, turn: int) -> None:
        began = time.perf_counter()
        try:
            look = self._looker.look()
        finally:
            ended = time.perf_counter()
            self._pace.looked(began, ended, turn)
            self._its_pace.looked(began, began, turn)
        self._tell(look, step)

    def _ask(self, step: int, turn: int) -> None:
        try:
            if self._process is None:
                self._processes += 1
                self._process = LookProcess(self._writer.root, self._folder)
            self._process.ask()
            self._asked = (step, turn)
        except CannotStartError:  # looks are taken here, then
            self._processes = _MOST_PROCESSES
        except ProcessEndedError as problem:
            self._ended(problem, step)

    def _ended(self, problem: ProcessEndedError, step: int) -> None:
        """The process has ended, and not by us: the next look starts another."""
        self.close()
        then = "the next look starts another" if self._may_start else "further looks are taken in the training process"
        self._writer.event("monitor-ended", step, why=f"the monitor's process has ended: {problem}; {then}")
        self._its_pace = _pace_of_process(0)

    def _last_look(self, step: int) -> Look | None:
        """Closing a run waits for it no longer than is declared above; None, and an event, if it takes longer."""
        if self._process is None:
            return self._looker.look()
        seconds = max(_LAST_SECONDS, _LAST_SHARE * self._pace.age(time.perf_counter()))
        try:
            if (answer := self._process.wait(self._process.ask(), seconds)) is not None:
                return _look_of(answer)
        except ProcessEndedError as problem:
            self._ended(problem, step)
            if self._its_time <= seconds:
                return self._looker.look()
        why = f"the last check takes longer than the {seconds:.0f} s that closing waits for it: run steadyrun check"
        self._writer.event("not-recorded", step, probe="the verdict at the end", why=why)
        return None

    # -- what was found ----------------------------------------------------------------------------------

    def _tell(self, look: Look, step: int) -> None:
        self._announce(self._new(self._findings(look, step), look))

    def _new(self, findings: list[Found], look: Look) -> list[Found]:
        """What was not announced yet, the headline first."""
        new = [finding for finding in findings if _identity(finding) not in self._announced]
        return sorted(new, key=lambda finding: finding.code != look.headline)

    def _findings(self, look: Look, step: int) -> list[Found]:
        """What is certain already, and what may pass but has stood for long. A suspect is announced once it stands."""
        now = {(seen.code, seen.kind): seen for seen in look.sightings}
        passing = {key for key, seen in now.items() if seen.may_pass}
        self._since = {key: self._since.get(key, step) for key in passing}
        # Long enough, or as long as the run was old when it began: a run of 300 steps must not end before that.
        stands = {key for key, since in self._since.items() if step - since >= min(STANDING, max(1, since))}
        return [
            _finding(seen, step, certain=key not in passing or seen.kind == SUSPECT)
            for key, seen in now.items()
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


def _identity(finding: Found) -> tuple[str, str, bool]:
    return finding.code, finding.grade, finding.certain


def _finding(seen: Sighting, step: int, *, certain: bool) -> Found:
    """`step` is the last that the look knew of; a process may have read some steps more."""
    noticed = step if seen.step is None else max(step, seen.step)
    return Found(seen.code, seen.outcome, seen.step, seen.message, seen.advice, noticed, certain, seen.kind)


def _look_of(answer: Answer) -> Look:
    if answer.look is None:
        raise SteadyrunError(answer.problem)
    return answer.look


def _pace_of_process(turn: int) -> LookPace:
    return LookPace(time.perf_counter(), turn, wait=OLD_ENOUGH, share=_ITS_SHARE, at_once=_ITS_START)


def _accelerated() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized()


def _working_folder(root: Path) -> Path:
    """Whose files of thresholds count; the run's own folder if the working directory was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return root


def _line(findings: list[Found], root: Path) -> str:
    """One line for all that one look found: the first is the one to begin with."""
    first, others = findings[0], ", ".join(finding.code for finding in findings[1:])
    kind = first.grade if first.certain else "a fault if it stays so:"
    more = f" (also {others})" if others else ""
    return f"{kind} {first.code} {first.outcome}{more}: {first.message} Evidence and fix: steadyrun check {root}"
