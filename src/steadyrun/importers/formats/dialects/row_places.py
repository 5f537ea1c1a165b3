"""Where rows of printed lines stand: steps that start over in epochs, and epochs that are named at their end."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice, pairwise

from steadyrun.importers.log_rows import Row
from steadyrun.importers.series_roles import EPOCH_LENGTH, RUN_COUNT, STARTS

INNER, TOTAL, LOOSE, BELOW = "\0inner", "\0total", "\0loose", "\0below"
"""Columns that rows lose before they are handed over: the length of an epoch beside a place in brackets; what stands
behind `/` of a count with a word; whether a row has no place of its own; and whether its epoch was named above it."""
OWN = (INNER, TOTAL, LOOSE, BELOW)
AXIS = ("epoch", "step", RUN_COUNT, STARTS, *OWN)

_AHEAD = 2_000  # rows in which it is looked for how epochs are named
_LONGEST_EPOCH = 50_000  # rows that wait for the name of their epoch


class Steps:
    """Tells steps that start over in every epoch, which get the length of the epoch, from steps of the whole run."""

    def __init__(self, ahead: list[Row]) -> None:
        placed = [row for row in ahead if "epoch" in row and "step" in row and (INNER in row or TOTAL in row)]
        grown = [(before, now) for before, now in pairwise(placed) if now["epoch"] > before["epoch"]]
        over = any(now["step"] <= before["step"] for before, now in grown)
        self.over = {INNER: over or len(grown) < 2, TOTAL: over}  # whether steps start over in every epoch
        at_end = any(row["step"] == row.get(INNER, row.get(TOTAL)) for row in placed)
        self.more = float(at_end and any(row["step"] == 0 for row in placed))  # an epoch counts from 0 to its length
        self.last: Row = {}

    def counted(self, row: Row) -> dict[str, float]:
        """A row without the columns of this file, and with the length of its epoch."""
        kind = INNER if INNER in row else TOTAL
        counted = {name: value for name, value in row.items() if name not in OWN}
        if kind not in row or "step" not in row or "epoch" not in row:
            return counted
        if self.last and row["epoch"] > self.last["epoch"] and row["step"] <= self.last["step"]:
            self.over = dict.fromkeys(self.over, True)
        self.last = row
        if self.over[kind]:
            counted[EPOCH_LENGTH] = row[kind] + self.more
        return counted


def in_epochs(rows: Iterator[Row]) -> Iterator[Row]:
    """Rows of steps that start over in epochs, each with its epoch, if only a summary at the end names that."""
    ahead = list(islice(rows, _AHEAD))
    if not _named_at_their_end(ahead):
        yield from chain(ahead, rows)
        return
    waiting: list[Row] = []
    last = -1.0
    for each in chain(ahead, rows):
        row = {name: value for name, value in each.items() if name != "epoch"} if BELOW in each else each
        if "epoch" in row or len(waiting) >= _LONGEST_EPOCH:
            last = row.get("epoch", last + 1)
            yield from ({"epoch": last, **held} for held in waiting)
            waiting.clear()
        if "epoch" in row:
            yield row
        else:
            waiting.append(row)
    yield from ({"epoch": last + 1, **row} if "step" in row else row for row in waiting)


def _named_at_their_end(ahead: list[Row]) -> bool:
    """Whether steps go back, each time right after a row that has an epoch of its own and no step."""
    places = [row for row in ahead if "step" in row or ("epoch" in row and BELOW not in row)]
    if not places or "step" not in places[0] or "epoch" in places[0]:
        return False
    if any("epoch" in row and "step" in row and BELOW not in row for row in places):
        return False
    top, named, ends = -1.0, False, 0
    for row in places:
        if "step" not in row:
            named = True
            continue
        if row["step"] <= top:
            if not named:
                return False
            ends += 1
        elif named:
            return False
        top, named = row["step"], False
    return ends > 0
