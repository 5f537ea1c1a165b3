"""From the rows to a verdict. Undecided is the right word where the table does not separate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from steadyrun.replay.bad_examples import in_words
from steadyrun.replay.hunt import Culprit
from steadyrun.replay.hunt.cause_table import CAUSES
from steadyrun.replay.experiments.experiment_table import DATA, MODEL, OPTIMIZER, PRECISION, RATE, UNDECIDED, FactorRow

Decision = tuple[str, str, str | None]
"""Verdict, why, and an interaction where there is one."""

_RATES = ("lr-held", "lr/3", "lr/10", "warmup")
_MOMENTS = ("earlier-moments", "moments-before-seam")
_BATCHES = ("other-batch", "other-batch-before")


class TriedRows:
    """What has been tried so far."""

    def __init__(self, rows: Sequence[FactorRow], left: Sequence[str]) -> None:
        self._rows = {row.factor: row for row in rows}
        self._left = set(left)

    def removed(self, *names: str) -> list[FactorRow]:
        return [row for name in names if (row := self._rows.get(name)) is not None and row.gone]

    def tried(self, *names: str) -> bool:
        """Whether each of these was tried, or cannot be."""
        return all(name in self._rows or name not in self._left for name in names)

    def keep_it(self, *names: str) -> bool:
        """Whether one of these was tested, and none of them removes the incident."""
        known = [row.gone for name in names if (row := self._rows.get(name)) is not None and row.gone is not None]
        return bool(known) and not any(known)

    def untested(self, *names: str) -> str:
        """Why none of these could be tested; empty if one was, or none was tried."""
        rows = [row for name in names if (row := self._rows.get(name)) is not None]
        return rows[0].note if rows and all(row.gone is None for row in rows) else ""

    def shows(self, name: str) -> bool | None:
        """Whether the incident is still there; None where it was not tried or could not be told."""
        row = self._rows.get(name)
        return None if row is None or row.gone is None else not row.gone


def decide(rows: TriedRows, culprit: Culprit | None, structural: bool) -> Decision | None:
    """The verdict that the rows carry so far; None where more of them are needed, or none does.

    A smaller rate that must begin long before the bad loss has trained another model by then. That is a cause of
    numbers that grow too large, and not of an operation that fails on ordinary ones, or of a format that is too narrow.
    """
    if culprit is not None and culprit.stage == "data":
        which = f": {in_words(culprit.examples)}" if culprit.examples else ""
        return DATA, f"the batch itself is not finite ({culprit.module}{which})", None
    if not rows.tried(*_RATES, "fp32", "loss-scale"):
        return None
    rate = rows.removed(*_RATES)
    at_once = [row for row in rate if not row.early]
    precise = rows.removed("fp32", "loss-scale")
    if precise and not at_once:
        return PRECISION, f"{_said(precise)} removes it; {_rates(rows)}", None
    in_model = culprit is not None and structural and culprit.stage in {"forward", "loss", "backward"}
    if culprit is not None and in_model and not at_once and not (rate and _grew(culprit)):
        where = culprit.module or "the loss function"
        return MODEL, f"{culprit.operation} in {where} fails, also in float32; {_rates(rows)}", None
    if not rows.tried(*_BATCHES, "batch-elsewhere"):
        return None
    batch = rows.removed(*_BATCHES)
    if batch:
        return _batch(rows, batch)
    if not rows.tried(*_MOMENTS, "epsilon"):
        return None
    moments = rows.removed(*_MOMENTS) or rows.removed("epsilon")
    if moments:
        return OPTIMIZER, f"{_said(moments)} removes it" + _not(rows, {"another batch": _BATCHES}), None
    if rate:
        others = {"another batch": _BATCHES, "other moments": (*_MOMENTS, "fresh-moments")}
        return RATE, f"{_said(rate)} removes it" + _not(rows, others), None
    return None


def _grew(culprit: Culprit) -> bool:
    return culprit.cause in CAUSES and CAUSES[culprit.cause].overflow


def _rates(rows: TriedRows) -> str:
    """What is known of smaller learning rates."""
    rate = rows.removed(*_RATES)
    if rate:
        return f"with {_said(rate)} it does not come in the replayed steps"
    if rows.keep_it(*_RATES):
        return "no smaller learning rate removes it"
    why = rows.untested(*_RATES)
    return f"smaller learning rates were {why}" if why else "smaller learning rates were not tested"


def _not(rows: TriedRows, groups: Mapping[str, Sequence[str]]) -> str:
    kept = [words for words, names in groups.items() if rows.keep_it(*names)]
    return f"; {' and '.join(kept)} {'do' if len(kept) > 1 else 'does'} not" if kept else ""


def _batch(rows: TriedRows, batch: list[FactorRow]) -> Decision | None:
    if rows.shows("batch-elsewhere"):
        return DATA, f"{_said(batch)} removes it, and the same batch does it at an earlier step, too", None
    if rows.shows("batch-elsewhere") is None:
        return DATA, f"{_said(batch)} removes it; no earlier step is kept at which it could be tried", None
    words = (
        "the batch and the state together: another batch removes it, and from an earlier state the same batch is fine"
    )
    return UNDECIDED, words, words


def _said(rows: Sequence[FactorRow]) -> str:
    row = rows[0]
    if not row.early:
        return row.words
    return f"{row.words} from step {row.starts[-1]} on, {row.before[-1]} steps before the bad loss,"
