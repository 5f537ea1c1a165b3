"""A saved trial as plain data: size-limited, damaged parts count as absent. The file is untrusted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from steadyrun.store.incident_files import entries, part, text, to_number, to_step
from steadyrun.store.jsonio import read_json
from steadyrun.store.run_summary import one_line

FILE = "trial.json"
SCHEMA = 1
FAULT, IMPROVEMENT, CLEAR, UNDECIDED = "fault", "improvement", "clear", "undecided"
OWN = "own"  # the unchanged twins
_SAID = {
    FAULT: "The trial found a fault",
    CLEAR: "The trial found nothing wrong",
    IMPROVEMENT: "The trial found nothing wrong, but one change is better",
    UNDECIDED: "The trial is undecided",
}
_SPLITS = {
    "validation": "the validation loss",
    "held": "the loss on held-out training examples",
    "seen": "the loss on training batches",
}
_MOST_ROWS, _MOST_CURVES, _MOST_MARKS = 300, 3000, 500
_LONGEST = 100  # characters of a change in words
_READ = 4000  # characters of any text
_FURTHEST = 2**31  # steps
_BEFORE_STEP = re.compile(r"before step (\d{1,9})\b")


@dataclass(frozen=True)
class Gain:
    """The gain of a change as a fraction of what can be learned, and its 95% interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class TriedChange:
    """One row of a trial: a change, its number of seeds, and its result. `loss` is None if no twin finished."""

    factor: str
    words: str
    seeds: int
    loss: float | None
    gain: Gain | None
    note: str = ""


@dataclass(frozen=True)
class TwinCurve:
    """One twin: the deciding loss at some of its steps. Losses may be infinite or NaN."""

    factor: str
    steps: tuple[int, ...]
    losses: tuple[float, ...]


@dataclass(frozen=True)
class TrialRecord:
    """One trial. `rows` are the changes; `own` is the row of the unchanged twins, None if it is missing.

    Step 0 of a twin is step `first` of the run.
    """

    verdict: str
    code: str
    outcome: str
    factor: str
    message: str
    would_decide: str
    fix: str
    tested: tuple[str, ...]
    measured: str
    steps: int | None
    first: int
    own: TriedChange | None
    rows: tuple[TriedChange, ...]
    curves: tuple[TwinCurve, ...]

    @property
    def said(self) -> str:
        """The verdict in words."""
        return f"{_SAID[self.verdict]}. {self.message[:1].upper()}{self.message[1:]}".strip()

    @property
    def found_fault(self) -> bool:
        return self.verdict == FAULT

    @property
    def ranked(self) -> list[TriedChange]:
        """The changes: first the one that the verdict names, then by gain."""
        return sorted(self.rows, key=lambda row: (row.factor != self.factor, -_brings(row)))

    def twins(self, factor: str) -> list[TwinCurve]:
        return [curve for curve in self.curves if curve.factor == factor]


def _brings(row: TriedChange) -> float:
    return float("-inf") if row.gain is None else row.gain.mean


def trial_record(run: Path) -> TrialRecord | None:
    """The trial saved with a run; None if there is none or it cannot be read."""
    try:
        content = read_json(run / FILE)
    except (OSError, ValueError):
        return None
    known = isinstance(content, dict) and content.get("schema") == SCHEMA and isinstance(content.get("verdict"), str)
    return parsed(content) if known else None


def parsed(content: Mapping[str, Any]) -> TrialRecord:
    """A trial from the content of its file."""
    split = text(content, "measured_on")
    curves = tuple(_curves(content, split))
    every = {row.factor: row for row in islice(map(_row, entries(content, "rows")), _MOST_ROWS)}
    tested = content.get("tested")
    verdict = text(content, "verdict")
    return TrialRecord(
        verdict=verdict if verdict in _SAID else UNDECIDED,
        code=_line(content, "code"),
        outcome=_line(content, "outcome"),
        factor=text(content, "factor"),
        message=_line(content, "message"),
        would_decide=_line(content, "would_decide"),
        fix=_line(content, "fix"),
        tested=tuple(code for code in tested[:_MOST_ROWS] if isinstance(code, str)) if isinstance(tested, list) else (),
        measured=_SPLITS.get(split, "the loss"),
        steps=_count(content.get("steps")),
        first=_first(text(content, "start")),
        own=every.pop(OWN, None),
        rows=tuple(every.values()),
        curves=curves,
    )


def _line(content: Mapping[str, Any], key: str) -> str:
    return one_line(text(content, key)[:_READ]).strip()


def _count(value: Any) -> int | None:
    step = to_step(value)
    return step if step is not None and 0 <= step < _FURTHEST else None


def _first(start: str) -> int:
    """The step of the run at which the twins start: that of a checkpoint, or 0."""
    named = _BEFORE_STEP.search(start[:_LONGEST])
    return int(named[1]) if named else 0


def _row(entry: Mapping[str, Any]) -> TriedChange:
    factor, loss = text(entry, "factor"), to_number(entry.get("loss"))
    return TriedChange(
        factor,
        _words(entry) or one_line(factor[:_LONGEST]),
        _count(entry.get("seeds")) or 0,
        loss if loss is not None and _finite(loss) else None,
        _gain(part(entry, "gain")),
        _line(entry, "note"),
    )


def _words(entry: Mapping[str, Any]) -> str:
    words = _line(entry, "words")
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}…"


def _gain(entry: Mapping[str, Any]) -> Gain | None:
    mean, low, high = (to_number(entry.get(key)) for key in ("mean", "low", "high"))
    if mean is None or low is None or high is None or not all(map(_finite, (mean, low, high))):
        return None
    return Gain(mean, low, high)


def _finite(value: float) -> bool:
    return abs(value) < float("inf")


def _curves(content: Mapping[str, Any], split: str) -> list[TwinCurve]:
    made = (_curve(entry, split) for entry in entries(content, "curves")[:_MOST_CURVES])
    return [curve for curve in made if curve is not None]


def _curve(entry: Mapping[str, Any], split: str) -> TwinCurve | None:
    marks, losses = entry.get("marks"), part(entry, "losses").get(split)
    if not isinstance(marks, list) or not isinstance(losses, list):
        return None
    pairs = [(_count(mark), to_number(loss)) for mark, loss in islice(zip(marks, losses, strict=False), _MOST_MARKS)]
    known = {step: loss for step, loss in pairs if step is not None and loss is not None}
    steps = tuple(sorted(known))
    return TwinCurve(text(entry, "factor"), steps, tuple(known[step] for step in steps)) if steps else None
