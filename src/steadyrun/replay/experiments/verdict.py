"""The result of the experiments: a row per change, and the verdict, "undecided" if they do not single out a cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from steadyrun.replay.bad_examples import in_words
from steadyrun.replay.hunt import Culprit
from steadyrun.replay.hunt.culprit import CAUSES, Example

# The result of the experiments: a row per change, and the verdict.


DATA, OPTIMIZER, RATE, PRECISION = "data", "optimizer-state", "learning-rate", "precision"
MODEL, NOT_REPRODUCIBLE, UNDECIDED = "model", "not-reproducible", "undecided"
SCHEMA = 1
NEAR = 10  # steps before the bad loss: a change that must begin earlier has trained another model by then


@dataclass(frozen=True)
class FactorRow:
    """One change and its result. `gone` is None if it was not tested, and `note` says why.

    `starts` are the steps from which it was tested, `before` their distances to the bad loss; the numbers belong to the
    last of them. The incident is gone with the last, or with none.
    """

    factor: str
    group: str
    words: str
    peak_loss: float
    peak_grad_norm: float
    gone: bool | None
    note: str = ""
    starts: tuple[int, ...] = ()
    before: tuple[int, ...] = ()

    @property
    def early(self) -> bool:
        """Whether only a start long before the bad loss removed the incident."""
        return bool(self.before) and self.before[-1] > NEAR


@dataclass(frozen=True)
class FailureAxes:
    """The same data with a smaller model, the same model on synthetic data, and what the failure is isolated to."""

    rows: list[FactorRow]
    carries: str  # data, model, optimizer, or undecided
    why: str


@dataclass(frozen=True)
class Why:
    """The table and the verdict. `start` is the first changed step, `moment` the first with a bad loss."""

    step: int
    kind: str
    verdict: str
    why: str
    moment: int
    start: int
    until: int
    baseline: FactorRow | None = None
    table: list[FactorRow] = field(default_factory=list)
    interaction: str | None = None
    left_out: list[str] = field(default_factory=list)
    isolation: FailureAxes | None = None
    examples: tuple[Example, ...] = ()  # of the batch: those that cause it alone, or contain NaN or infinity

    def to_dict(self) -> dict[str, Any]:
        """The documented JSON form (docs/replay.md)."""
        return {
            "schema": SCHEMA,
            "incident": {"step": self.step, "kind": self.kind},
            "verdict": self.verdict,
            "why": self.why,
            "interaction": self.interaction,
            "moment": self.moment,
            "start": self.start,
            "until": self.until,
            "baseline": None if self.baseline is None else asdict(self.baseline),
            "table": [asdict(row) for row in self.table],
            "left_out": self.left_out,
            "isolation": None if self.isolation is None else asdict(self.isolation),
            "examples": [asdict(example) for example in self.examples],
        }


# From the rows to a verdict: undecided if the table does not single out a cause.


Decision = tuple[str, str, str | None]
"""Verdict, why, and an interaction if there is one."""

_RATES = ("lr-held", "lr/3", "lr/10", "warmup")
_MOMENTS = ("earlier-moments", "moments-before-seam")
_BATCHES = ("other-batch", "other-batch-before")


class TriedRows:
    """The changes tested so far."""

    def __init__(self, rows: Sequence[FactorRow], left: Sequence[str]) -> None:
        self._rows = {row.factor: row for row in rows}
        self._left = set(left)

    def removed(self, *names: str) -> list[FactorRow]:
        return [row for name in names if (row := self._rows.get(name)) is not None and row.gone]

    def tried(self, *names: str) -> bool:
        """Whether each of these was tested, or cannot be."""
        return all(name in self._rows or name not in self._left for name in names)

    def keep_it(self, *names: str) -> bool:
        """Whether some of these were tested, and none removes the incident."""
        known = [row.gone for name in names if (row := self._rows.get(name)) is not None and row.gone is not None]
        return bool(known) and not any(known)

    def untested(self, *names: str) -> str:
        """Why none of these could be tested; empty if one was, or none was attempted."""
        rows = [row for name in names if (row := self._rows.get(name)) is not None]
        return rows[0].note if rows and all(row.gone is None for row in rows) else ""

    def shows(self, name: str) -> bool | None:
        """Whether the incident is still there; None if it was not tested or not decided."""
        row = self._rows.get(name)
        return None if row is None or row.gone is None else not row.gone


def decide(rows: TriedRows, culprit: Culprit | None, structural: bool) -> Decision | None:
    """The verdict that the rows support so far; None if more rows are needed, or none decides.

    A smaller rate that must begin long before the bad loss has trained another model by then. It can be the cause of
    values that grow too large, but not of an operation that fails on ordinary values, or of a dtype that is too narrow.
    """
    if culprit is not None and culprit.stage == "data":
        which = f": {in_words(culprit.examples)}" if culprit.examples else ""
        return DATA, f"the batch itself contains NaN or infinity ({culprit.module}{which})", None
    if not rows.tried(*_RATES, "fp32", "loss-scale"):
        return None
    rate = rows.removed(*_RATES)
    at_once = [row for row in rate if not row.early]
    precise = rows.removed("fp32", "loss-scale")
    if precise and not at_once:
        return PRECISION, f"{_changed(precise)} removes the incident; {_rates(rows)}", None
    in_model = culprit is not None and structural and culprit.stage in {"forward", "loss", "backward"}
    if culprit is not None and in_model and not at_once and not (rate and _grew(culprit)):
        where = culprit.module or "the loss function"
        return MODEL, f"the operation {culprit.operation} in {where} fails even in float32; {_rates(rows)}", None
    if not rows.tried(*_BATCHES, "batch-elsewhere"):
        return None
    batch = rows.removed(*_BATCHES)
    if batch:
        return _batch(rows, batch)
    if not rows.tried(*_MOMENTS, "epsilon"):
        return None
    moments = rows.removed(*_MOMENTS) or rows.removed("epsilon")
    if moments:
        return OPTIMIZER, f"{_changed(moments)} removes the incident" + _not(rows, {"another batch": _BATCHES}), None
    if rate:
        others = {"another batch": _BATCHES, "other moments": (*_MOMENTS, "fresh-moments")}
        return RATE, f"{_changed(rate)} removes the incident" + _not(rows, others), None
    return None


def _grew(culprit: Culprit) -> bool:
    return culprit.cause in CAUSES and CAUSES[culprit.cause].overflow


def _rates(rows: TriedRows) -> str:
    """The results of smaller learning rates."""
    rate = rows.removed(*_RATES)
    if rate:
        return f"with {_changed(rate)} it does not occur in the replayed steps"
    if rows.keep_it(*_RATES):
        return "smaller learning rates do not help"
    why = rows.untested(*_RATES)
    return f"smaller learning rates were {why}" if why else "smaller learning rates were not tested"


def _not(rows: TriedRows, groups: Mapping[str, Sequence[str]]) -> str:
    kept = [words for words, names in groups.items() if rows.keep_it(*names)]
    return f"; {' and '.join(kept)} {'do' if len(kept) > 1 else 'does'} not" if kept else ""


def _batch(rows: TriedRows, batch: list[FactorRow]) -> Decision | None:
    if rows.shows("batch-elsewhere"):
        return (
            DATA,
            f"{_changed(batch)} removes the incident, and the same batch also causes it at an earlier step",
            None,
        )
    if rows.shows("batch-elsewhere") is None:
        return (
            DATA,
            f"{_changed(batch)} removes the incident; the same batch could not be tested at an earlier step",
            None,
        )
    words = (
        "the batch and the weights cause it together: another batch removes the incident, and the same batch is "
        "harmless at an earlier step"
    )
    return UNDECIDED, words, words


def _changed(rows: Sequence[FactorRow]) -> str:
    row = rows[0]
    if not row.early:
        return row.words
    return f"{row.words} from step {row.starts[-1]} ({row.before[-1]} steps before the bad loss)"
