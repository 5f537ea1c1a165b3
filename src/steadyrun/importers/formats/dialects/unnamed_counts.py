"""Counts whose name nobody knows: `cycle=3 utility=0.5`, in which `cycle` grows by the same amount in each line."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from steadyrun.importers.log_rows import Row

_FEWEST = 5  # rows in which a count grows
_MOST = 0.9  # of the steps from row to row that are alike: a count may start over
_LOOKED_AT = 500


def counter_of(rows: Sequence[Row]) -> str | None:
    """The first name of rows without a place that counts them, with a measured number beside it; None if none does."""
    looked = rows[:_LOOKED_AT]
    names = dict.fromkeys(name for row in looked for name in row)
    return next((name for name in names if _counts([row for row in looked if name in row], name)), None)


def _counts(rows: Sequence[Row], name: str) -> bool:
    values = [row[name] for row in rows]
    if len(values) < _FEWEST or any(value < 0 or value != value // 1 for value in values):
        return False
    gaps = [after - before for before, after in pairwise(values)]
    alike = sum(gap == gaps[0] for gap in gaps)
    beside = any(value != value // 1 for row in rows for other, value in row.items() if other != name)
    return gaps[0] > 0 and alike >= _MOST * len(gaps) and beside
