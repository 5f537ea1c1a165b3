"""Any line with names and numbers and a loss among them: `step 10 loss: 2.3 lr=1e-4`, `Epoch [3][50/70] loss: 0.9`.

Lines that only say where a run is (`Epoch 3/10`, `[step=10/500]`) hold for the lines below them. Redrawings of a
progress bar at the same place are one point, the last of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from steadyrun.importers.formats.dialects.form import Dialect, Lines, pairs, read
from steadyrun.importers.formats.dialects.phrases import Phrase, phrase
from steadyrun.importers.formats.jsonlines import parsed
from steadyrun.importers.formats.objects import row_of
from steadyrun.importers.model import Log, Row
from steadyrun.importers.numbers import ANY
from steadyrun.importers.told import Told
from steadyrun.importers.words import HELD_OUT, LOSS_WORDS, TRAIN

_LONGEST = 4_000
_FIELD = re.compile(rf"^\s\W*+([A-Za-z][\w ./()@-]*+)\s*+[:=]\s*+({ANY})\s*$", re.I)
_HINT = re.compile(r"loss|xent|epoch|step|iter|batch|test|val", re.I)
_TITLE = re.compile(rf"^\W*(?:{'|'.join(sorted(HELD_OUT))})\b[\w ]{{0,20}}:\s*$", re.I)  # `Test Error:`
_SETTING = re.compile(
    r"\b(?:total|warm-?up|number|num|max(?:imum)?|every|per|steps = |sav\w+)", re.I
)  # counts of something else
_AXIS = {"epoch", "epochs", "ep", "step", "steps", "iter", "iteration", "global_step", "num_updates", "batch", "update"}


@dataclass
class _Reader:
    """What is remembered from line to line."""

    told: Told
    first: float | None = None  # the first epoch that was named
    heading: dict[str, float] = field(default_factory=dict)  # where the lines below a heading stand
    block: dict[str, float] = field(default_factory=dict)  # fields of indented lines below a heading
    titled: bool = False  # the line above was the title of an evaluation
    bar: tuple[tuple[str, str, str | None], dict[str, float]] | None = None  # a bar that may be drawn again

    def rows(self, number: int, line: str) -> Iterator[Row]:
        """The rows that are whole after this line."""
        if self.heading and (found := _FIELD.match(line)):
            self.block.update(pairs([(found[1], found[2])], self.told, number))
            return
        if self.block:
            yield from self.ended()
        if len(line) > _LONGEST:
            self.told.odd(f"lines longer than {_LONGEST:,} characters", "not read", f"line {number:,}")
            return
        if not _HINT.search(line):
            return
        if '":' in line and isinstance(held := parsed(line[line.find("{") : line.rfind("}") + 1]), dict):
            yield from self._json(held, number)
            return
        said = phrase(line)
        given = dict(reversed(said.pairs))  # the first of a name counts: totals and averages come later
        row = pairs([(name, text) for name, text in given.items() if name.lower() not in _AXIS], self.told, number)
        where = self._where(said, number)
        if not _has_loss(row):
            if where and not said.bar and not _SETTING.search(line):
                self.heading = where
            self.titled = bool(_TITLE.match(line))
            return
        if self.titled and not where:
            row = {_held_out(name): value for name, value in row.items()}
        self.titled = False
        if said.held_out and not said.done:
            return
        placed = where or self.heading
        if "epoch" in self.heading and "epoch" not in placed:
            placed = {**placed, "epoch": self.heading["epoch"]}
        yield from self._drawn(said, {**placed, **row})

    def ended(self) -> Iterator[Row]:
        """What is left when a block, or the log, ends."""
        if self.block:
            yield {**self.heading, **self.block}
            self.block = {}
        if self.bar:
            yield self.bar[1]
            self.bar = None

    def _json(self, held: dict[str, object], number: int) -> Iterator[Row]:
        row = row_of(held, self.told, f"line {number:,}")
        if _has_loss(row):
            yield row

    def _drawn(self, said: Phrase, row: dict[str, float]) -> Iterator[Row]:
        key = (*said.inner, said.epoch) if said.inner and said.bar else None
        if self.bar and self.bar[0] != key:
            yield self.bar[1]
            self.bar = None
        if key:
            self.bar = (key, row)
        else:
            yield row

    def _where(self, said: Phrase, number: int) -> dict[str, float]:
        """Epoch and step of a line; the counters of an evaluation count its own batches."""
        where: dict[str, float] = {}
        epoch = read(said.epoch, self.told, f"line {number:,}") if said.epoch else None
        if epoch is not None:
            where["epoch"] = epoch
            self.first = epoch if self.first is None else self.first
        if said.step:
            where.update(pairs([("step", said.step)], self.told, number))
        elif said.inner and not said.held_out:
            at, of = (read(text, self.told, f"line {number:,}") or 0.0 for text in said.inner)
            epoch = self.heading.get("epoch") if epoch is None else epoch
            epochs = 0.0 if epoch is None or self.first is None else epoch - min(self.first, 1.0)
            where["step"] = at + max(epochs, 0.0) * of
        return where


def _has_loss(row: Row) -> bool:
    return any(word in name.lower() for name in row for word in LOSS_WORDS)


def _held_out(name: str) -> str:
    named = set(re.split(r"[\W_]+", name.lower()))
    return f"val_{name}" if "loss" in name.lower() and not named & (HELD_OUT | TRAIN) else name


def _rows(lines: Lines, told: Told, _log: Log) -> Iterator[Row]:
    reader = _Reader(told)
    for number, line in lines:
        yield from reader.rows(number, line)
    yield from reader.ended()


def _sure(lines: list[str]) -> bool:
    """A log says the same again and again, of other steps; a text that mentions a loss does not."""
    found = list(islice(_rows(enumerate(lines, start=1), Told(), Log(iter(()))), 300))
    kinds = Counter(_kind(row) for row in found)
    if not kinds:
        return False
    kind, count = kinds.most_common(1)[0]
    alike = [row for row in found if _kind(row) == kind]
    if count >= 2 and kind[1]:
        return len({(row.get("epoch"), row.get("step")) for row in alike}) >= 2
    return len({tuple(row.values()) for row in alike}) >= 3


def _kind(row: Row) -> tuple[str, bool]:
    """What a row is about: its first loss, and whether it says where it stands."""
    first = next((name for name in row if _has_loss({name: 0.0})), "")
    return first, "step" in row or "epoch" in row


DIALECT = Dialect(
    "text",
    "text with names and numbers",
    re.compile(rf"^.{{0,500}}?(?:loss|xent).{{0,80}}?{ANY}", re.I),
    _rows,
    sure=_sure,
    last_resort=True,
)
