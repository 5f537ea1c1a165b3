"""The form of every question, and its possible answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from steadyrun.errors import UsageError
from steadyrun.questions.aliases import aliases_of
from steadyrun.signals.missing import MissingSignal, NotApplicable, hint
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.script_advice import for_script
from steadyrun.signals.success import judged_without_loss

STANDING = 200  # steps that a fault which may pass must last before the live monitor reports it
_LARGEST = 1e9

PASS, FAULT, SUSPECT, NOTE = "pass", "fault", "suspect", "note"
CANNOT_TELL, NOT_APPLICABLE = "cannot-tell", "not-applicable"
GRADES = (FAULT, SUSPECT, NOTE)
"""Grades of a finding, the gravest first: proved, likely, unusual."""

Changes = Mapping[str, Mapping[str, float]]
"""Thresholds the user changed: question code, threshold name, value."""


Edges = Mapping[str, tuple[str, ...]]
"""By outcome: the sections or questions to ask first for the cause of such a symptom."""


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """One limit: its value, what it limits, the rule of thumb behind it, and the reason for the value."""

    name: str
    value: float
    unit: str
    meaning: str
    seed: str  # the rule of thumb in its own terms; "" if there is none
    decision: str  # why this value
    of: str = ""  # the measured number that it limits; with a minus if smaller is worse

    @property
    def source(self) -> str:
        if self.seed:
            return f"rule of thumb: {self.seed}"
        return "measured on healthy runs" if self.of else "chosen; `steadyrun explain` gives the reason"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One possible answer.

    `may_pass` marks a fault of the run's present state that more training may undo: the live monitor does not
    call it certain before the end.
    `explains` names sections, questions or answers ("C4.2:gap") that follow from this one: if both are found, this
    is the cause.
    """

    name: str
    answer: str
    meaning: str
    fix: str = ""
    experiment: str = ""  # of a suspect: what would prove or clear it
    may_pass: bool = False
    panel: int | None = None  # the panel that shows it, if not the question's
    explains: tuple[str, ...] = ()
    proved: bool = False  # a proof, not a statistic: only an outcome that names it in `explains` can be its cause
    symptom: bool = False  # shows that something is wrong, not what: any other fault is a better headline


@dataclass(frozen=True)
class Answer:
    """What a question found."""

    kind: str
    outcome: str
    message: str
    measured: Mapping[str, float] = field(default_factory=dict)
    step: int | None = None
    fix: str = ""
    edge: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    how_to_record: str = ""
    panel: int | None = None
    may_pass: bool = False  # more training may undo this fault, or show that it is another
    experiment: str = ""  # of a suspect: what would prove or clear it
    ranks: tuple[int, ...] = ()  # of a job of several processes: those it names


class Limits:
    """The thresholds of one question by name, with what the user changed; `everywhere` has the changes of all."""

    def __init__(
        self,
        thresholds: tuple[Threshold, ...],
        changed: Mapping[str, float] | None = None,
        everywhere: Changes | None = None,
    ) -> None:
        self._values = {threshold.name: threshold.value for threshold in thresholds}
        self.changed = dict(changed or {})
        self.everywhere = everywhere or {}
        if unknown := sorted(set(self.changed) - set(self._values)):
            known = ", ".join(self._values) or "none"
            raise UsageError(f"unknown threshold {unknown[0]!r}; choose from: {known}")
        for name, value in self.changed.items():
            if not 0 < value < _LARGEST:
                raise UsageError(f"threshold {name} is {value:g}; set it to a positive number below {_LARGEST:g}")
        self._values.update(self.changed)

    def __getitem__(self, name: str) -> float:
        return self._values[name]

    def count(self, name: str) -> int:
        """A limit as a whole number of steps, points or batches: at least 1."""
        return max(1, int(self[name]))

    def of(self, question: Question) -> Limits:
        """The limits of another question in the same walk."""
        return Limits(question.thresholds, self.everywhere.get(question.code), self.everywhere)

    def ask(self, question: Question, run: Any) -> Answer:
        """Ask another question with its limits in the same walk."""
        return question.ask(run, self.everywhere.get(question.code), self.everywhere)


@dataclass(frozen=True)
class Question:
    """A question, complete in itself: its page, `explain` and its answer all use this object."""

    code: str
    name: str
    asks: str
    why: str
    needs: tuple[str, ...]
    panel: int | None
    thresholds: tuple[Threshold, ...]
    outcomes: tuple[Outcome, ...]
    find: Callable[[Any, Limits], Finding]  # of a run's signals; of a bench with live objects in preflight
    always: bool = False  # also asked after a fault: it proves or rules out a cause
    edges: Edges = field(default_factory=dict)  # set by its tree
    special: bool = False  # about one kind of task: texts omit it if it does not apply; JSON includes it
    tried: bool = False  # a preflight probe of live objects; the record's question may have the same code

    @property
    def aliases(self) -> tuple[str, ...]:
        """Former codes."""
        return aliases_of(self.code)

    def ask(self, run: Any, changed: Mapping[str, float] | None = None, everywhere: Changes | None = None) -> Answer:
        """Answer the question; "missing" and "not applicable" are also answers.

        `changed` holds the user's limits for this question, `everywhere` those for all questions.
        """
        limits = Limits(self.thresholds, changed, {self.code: changed or {}} if everywhere is None else everywhere)
        try:
            with np.errstate(all="ignore"):  # huge numbers may overflow: the comparison that follows rejects them
                finding = self.find(run, limits)
        except MissingSignal as missing:
            if missing.name == "loss" and isinstance(run, Signals) and (instead := judged_without_loss(run)):
                return Answer(NOT_APPLICABLE, "not-applicable", instead, missing=("loss",))
            return Answer(
                CANNOT_TELL, "missing", str(missing), missing=(missing.name,), how_to_record=_how(run, missing)
            )
        except NotApplicable as why:
            return Answer(NOT_APPLICABLE, "not-applicable", str(why), missing=why.missing)
        outcome = self.outcome(finding.outcome)
        return Answer(
            outcome.answer,
            outcome.name,
            finding.message,
            finding.measured,
            finding.step,
            _advice(run, finding.fix or outcome.fix),
            self.edges.get(outcome.name, ()),
            panel=outcome.panel,
            may_pass=outcome.may_pass or finding.may_pass,
            experiment=finding.experiment or outcome.experiment,
            ranks=finding.ranks,
        )

    def outcome(self, name: str) -> Outcome:
        return next(outcome for outcome in self.outcomes if outcome.name == name)


def node(question: Question, edges: Edges | None = None) -> Question:
    """A question in a tree, with the edges that lead on from it."""
    if unknown := sorted(set(edges or {}) - {outcome.name for outcome in question.outcomes}):
        raise ValueError(f"{question.code} has no outcome {unknown[0]!r}")
    return replace(question, edges=edges or {})


def _how(run: Any, missing: MissingSignal) -> str:
    """The hint how to record it; if there is a run, it takes into account what the run already records."""
    return _advice(run, hint(run, missing)) if isinstance(run, Signals) else missing.how


def _advice(run: Any, text: str) -> str:
    return for_script(text) if isinstance(run, Signals) and run.of_script else text


@dataclass(frozen=True)
class Finding:
    """The result of a question's `find`: the outcome, the message and the numbers."""

    outcome: str
    message: str
    measured: Mapping[str, float] = field(default_factory=dict)
    step: int | None = None
    fix: str = ""  # more exact than the outcome's fix, if the run allows it
    experiment: str = ""  # more exact than the outcome's
    may_pass: bool = False  # this finding may pass, although not every finding of its outcome does
    ranks: tuple[int, ...] = ()  # the ranks it names, of a job of several processes


def explained(answer: Answer, by: str) -> Answer:
    """A symptom whose cause another question found."""
    return replace(answer, kind=NOTE, message=f"{answer.message} {by} finds the cause.")
