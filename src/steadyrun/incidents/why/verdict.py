"""From the rows to a verdict. Undecided is the right word where the table does not separate."""

from __future__ import annotations

from collections.abc import Sequence

from steadyrun.incidents.hunt import Culprit
from steadyrun.incidents.why.table import DATA, MODEL, OPTIMIZER, PRECISION, RATE, UNDECIDED, Row

Decision = tuple[str, str, str | None]
"""Verdict, why, and an interaction where there is one."""

_RATES = ("lr-held", "lr/3", "lr/10", "warmup")
_MOMENTS = ("earlier-moments", "moments-before-seam")
_BATCHES = ("other-batch", "other-batch-before")


class Rows:
    """What has been tried so far."""

    def __init__(self, rows: Sequence[Row], left: Sequence[str]) -> None:
        self._rows = {row.factor: row for row in rows}
        self._left = set(left)

    def removed(self, *names: str) -> list[Row]:
        return [row for name in names if (row := self._rows.get(name)) is not None and row.gone]

    def tried(self, *names: str) -> bool:
        """Whether each of these was tried, or cannot be."""
        return all(name in self._rows or name not in self._left for name in names)

    def shows(self, name: str) -> bool | None:
        """Whether the incident is still there; None where it was not tried or could not be told."""
        row = self._rows.get(name)
        return None if row is None or row.gone is None else not row.gone


def decide(rows: Rows, culprit: Culprit | None, structural: bool) -> Decision | None:
    """The verdict that the rows carry so far; None where more of them are needed, or none does."""
    if not rows.tried(*_RATES, "fp32", "loss-scale"):
        return None
    rate = rows.removed(*_RATES)
    precise = rows.removed("fp32", "loss-scale")
    if precise and not rate:
        return PRECISION, f"{_said(precise)} removes it, and no smaller learning rate does", None
    if culprit is not None and culprit.stage == "data":
        return DATA, f"the batch itself is not finite ({culprit.module})", None
    if culprit is not None and structural and culprit.stage in {"forward", "loss", "backward"} and not rate:
        where = culprit.module or "the loss function"
        return (
            MODEL,
            f"{culprit.operation} in {where} does it, in float32, too; no smaller learning rate removes it",
            None,
        )
    if not rows.tried(*_BATCHES, "batch-elsewhere"):
        return None
    batch = rows.removed(*_BATCHES)
    if batch:
        return _batch(rows, batch)
    if not rows.tried(*_MOMENTS, "epsilon"):
        return None
    moments = rows.removed(*_MOMENTS) or rows.removed("epsilon")
    if moments:
        return OPTIMIZER, f"{_said(moments)} removes it; another batch does not", None
    if rate:
        return RATE, f"{_said(rate)} removes it; another batch and other moments do not", None
    return None


def _batch(rows: Rows, batch: list[Row]) -> Decision | None:
    if rows.shows("batch-elsewhere"):
        return DATA, f"{_said(batch)} removes it, and the same batch does it at an earlier step, too", None
    if rows.shows("batch-elsewhere") is None:
        return DATA, f"{_said(batch)} removes it; no earlier step is kept at which it could be tried", None
    words = (
        "the batch and the state together: another batch removes it, and from an earlier state the same batch is fine"
    )
    return UNDECIDED, words, words


def _said(rows: Sequence[Row]) -> str:
    return rows[0].words
