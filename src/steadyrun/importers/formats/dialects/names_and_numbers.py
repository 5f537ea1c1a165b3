"""Any line with names and numbers and a loss among them: `step 10 loss: 2.3 lr=1e-4`, `Epoch [3][50/70] loss: 0.9`.

Lines that only say where a run is (`Epoch 3/10`, `[step=10/500]`) hold for the lines below them. Redrawings of a
progress bar at the same place are one point, the last of them.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from steadyrun.importers.formats.dialects.dialect import Dialect, Lines, pairs, read
from steadyrun.importers.formats.jsonfile import parsed, row_of
from steadyrun.importers.log_rows import Anomalies, Log, Row
from steadyrun.importers.number_text import ANY
from steadyrun.importers.series_roles import HELD_OUT, LOSS_WORDS, TRAIN

_QUALIFIER = (
    r"(?:train(?:ing)?|val(?:id(?:ation)?)?|eval(?:uation)?|test|dev|total|avg|average|mean|running|lm|cross|ce|nll|loss|"
    r"grad(?:ient)?|global|learning|current|l2|dynamic|smoothed|best|min|max|epoch|batch)"
)
_END = r"(?![A-Za-z_]*+\d|\d*+[:/]\d|\.\d)"  # no half of a time, a fraction or an identifier
_PAIR = re.compile(rf"(?<![\w/.])([A-Za-z_][\w./@'()-]{{0,100}}+)\s*+[:=]\s*+\[?\(?({ANY}){_END}", re.I)
_LOSS = r"(?=[\w./-]{0,100}?loss(?:\s|[_/.][\w./-]))[\w./-]{1,100}+"
_NOUN = rf"{_LOSS}|lr|learning[ _]rate|grad[ _]norm|gradient norm|gnorm|norm|ppl|perplexity|xent"
_WORD = re.compile(rf"(?<![\w/.])({_NOUN})\s++(?:is |of |= )?({ANY}){_END}", re.I)
_BEFORE = re.compile(rf"(?<![\w/.])(?:{_QUALIFIER} ){{1,6}}$", re.I)  # words that belong to the name after them
_FAR = 40
_LITGPT = re.compile(r"\bloss train(?: \(curr\))?[: ]\s*+([^\s,]++), val(?: \([^)]{0,40}\))?[: ]\s*+([^\s|,]++)")
_MARK = re.compile(
    rf"(?:(?<=^)|(?<=[\s\[|(*=-]))({'|'.join(sorted(TRAIN | HELD_OUT))})(?=[\s\])|:(]|$)(?! ?loss)", re.I
)

_N = r"(\d++(?:,\d{3})*+)(?!\d*+(?:\.\d|\s*+%))"
_OF = rf"{_N}(?:\s*+/\s*+(\d[\d,]*+))?"
_AT = r"\s*+[:=#\[(]?\s*+"
_COUNTS = (  # a word that has to be there, and how the count is written
    ("num_updates", re.compile(rf"\bnum_updates(?:\s*+[:=]|\s)\s*+{_OF}", re.I)),
    ("step", re.compile(rf"(?<![/\w-])(?:global[ _]?steps?|current[ _]steps?){_AT}{_OF}", re.I)),
    ("iter", re.compile(rf"(?<![/\w-])(?:iter(?:ation)?s?|acc_iter){_AT}{_OF}(?!\s*it/s)", re.I)),
    ("step", re.compile(rf"(?<![/\w-])steps?{_AT}{_OF}", re.I)),
    ("update", re.compile(rf"(?<![/\w-])update{_AT}{_OF}", re.I)),
    ("batch", re.compile(rf"(?<![/\w-])(?:mini-?)?batch{_AT}{_OF}(?![\w.])", re.I)),
)
_EPOCH = re.compile(
    r"(?<![\w/])(?:epochs?|ep)(?:\(train\)|\(val\))?\s*+[:=#]?\s*+[\[(]?\s*+(\d++(?:\.\d++)?+)(?![\w.]{0,40}\.\d)"
    r"(?:\s*+/\s*+\d++)?+\s*+[\])]?",
    re.I,
)
# timm: `Train: 0 [ 50/1251 (4%)]`, Swin: `Train: [0/300][10/1251]`
_TRAIN = re.compile(r"(?<!\w)train(?:ing)?\s*:\s*\[?(\d++)(?:/\d++)?(?: \([^)]{0,40}\))?\]?(?=\s*+\[)", re.I)
_INNER = re.compile(
    r"\[\s*+(\d[\d,]{0,15})\s*+/\s*+(\d[\d,]{0,15})\s*+(?:\([^)]{0,40}\)\s*+)?\]|(?<=:)\s++(\d{1,15}) / (\d{1,15})\s"
)
_BAR = re.compile(r"(?:\||%\s|━)\s*(\d{1,15})/(\d{1,15})\s*(?:\[|\d+:\d)")
_ESPNET = re.compile(r"(?<!\d)(\d+)epoch:train:\d+-(\d+)batch")
_ESPNET_END = re.compile(r"(?<!\d)(\d+)epoch results:")
_TUTORIAL = re.compile(r"^\W*\[(\d+),\s+(\d+)\]\s")
_FRONT = re.compile(rf"^\W*{_OF}\s*(?:[|:\]]|\s-\s)")
_WORDS = re.compile(r"[\W_]+")
_AVERAGE = re.compile(rf"\s{{0,20}}+\(\s{{0,20}}+({ANY})\s{{0,20}}+\)")


@dataclass
class Phrase:
    """What a line says."""

    pairs: list[tuple[str, str]] = field(default_factory=list)
    epoch: str | None = None
    step: str | None = None
    inner: tuple[str, str] | None = None  # place within the epoch, and the epoch's length
    bar: bool = False
    held_out: bool = False  # the whole line is about an evaluation
    done: bool = True  # of an evaluation that counts its batches: it is the last line


def phrase(line: str) -> Phrase:
    """The names and numbers of a line, and where in the run it stands."""
    if "loss train" in line:
        line = _LITGPT.sub(r"train loss: \1, val loss: \2", line)
    said = Phrase()
    marks = [(mark.start(), mark[1].lower() in HELD_OUT) for mark in _MARK.finditer(line)]
    starts = [start for start, _ in marks]
    matches = sorted([*_PAIR.finditer(line), *_WORD.finditer(line)], key=lambda match: match.start(1))
    first = matches[0].start() if matches else len(line)
    said.held_out = next((held_out for start, held_out in marks if start <= first), False)
    _where(line, said)
    for match in matches:
        before = bisect_left(starts, match.start())
        held_out = before > 0 and marks[before - 1][1]
        text = match[2]
        if held_out and said.inner is not None and (average := _AVERAGE.match(line, match.end())):
            text = average[1]  # of an evaluation the mean over its batches is meant
        said.pairs.append((_named(_whole(line, match), held_out), text))
    return said


def _whole(line: str, match: re.Match[str]) -> str:
    """A name with the words before it that belong to it: `learning rate`, `val loss`."""
    start = match.start(1)
    if start < 3 or line[start - 1] != " " or not line[start - 2].isalpha():
        return match[1]
    before = _BEFORE.search(line, max(0, start - _FAR), start)
    return f"{before[0]}{match[1]}" if before else match[1]


def _named(name: str, held_out: bool) -> str:
    """A name, with `val_` in front where the line is about an evaluation and the name does not say so."""
    if not held_out or "loss" not in name.lower() or set(_WORDS.split(name.lower())) & (TRAIN | HELD_OUT):
        return name
    return f"val_{name}"


def _where(line: str, said: Phrase) -> None:
    low = line.lower()
    if "epoch:train:" in low and (match := _ESPNET.search(line)):
        said.epoch, said.step = match[1], match[2]
        return
    if match := _TUTORIAL.match(line):
        said.epoch, said.step = match[1], match[2]
        return
    epoch = _epoch(line, low)
    said.epoch = epoch[1] if epoch else None
    bar = _BAR.search(line) if "|" in line or "%" in line or "━" in line else None
    inner = bar or _INNER.search(line, epoch.end() if epoch else 0)
    if inner:
        at, of = (group for group in inner.groups() if group is not None)
        said.inner, said.bar = (at, of), bar is not None
        said.done = int(at.replace(",", "")) >= int(of.replace(",", "")) - 1
    counted = next((match for word, pattern in _COUNTS if word in low and (match := pattern.search(line))), None)
    if counted:
        said.step = counted[1]
    elif not epoch and not inner and (front := _FRONT.match(line)):
        said.step = front[1]


def _epoch(line: str, low: str) -> re.Match[str] | None:
    match = _EPOCH.search(line) if "ep" in low else None
    match = match or (_TRAIN.search(line) if "train" in low else None)
    return match or (_ESPNET_END.search(line) if "epoch results" in low else None)


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

    anomalies: Anomalies
    first: float | None = None  # the first epoch that was named
    heading: dict[str, float] = field(default_factory=dict)  # where the lines below a heading stand
    block: dict[str, float] = field(default_factory=dict)  # fields of indented lines below a heading
    titled: bool = False  # the line above was the title of an evaluation
    bar: tuple[tuple[str, str, str | None], dict[str, float]] | None = None  # a bar that may be drawn again

    def rows(self, number: int, line: str) -> Iterator[Row]:
        """The rows that are whole after this line."""
        if self.heading and (match := _FIELD.match(line)):
            self.block.update(pairs([(match[1], match[2])], self.anomalies, number))
            return
        if self.block:
            yield from self.ended()
        if len(line) > _LONGEST:
            self.anomalies.note(f"lines longer than {_LONGEST:,} characters", "not read", f"line {number:,}")
            return
        if not _HINT.search(line):
            return
        if '":' in line and isinstance(entry := parsed(line[line.find("{") : line.rfind("}") + 1]), dict):
            yield from self._json(entry, number)
            return
        said = phrase(line)
        given = dict(reversed(said.pairs))  # the first of a name counts: totals and averages come later
        row = pairs([(name, text) for name, text in given.items() if name.lower() not in _AXIS], self.anomalies, number)
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

    def _json(self, entry: dict[str, object], number: int) -> Iterator[Row]:
        row = row_of(entry, self.anomalies, f"line {number:,}")
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
        epoch = read(said.epoch, self.anomalies, f"line {number:,}") if said.epoch else None
        if epoch is not None:
            where["epoch"] = epoch
            self.first = epoch if self.first is None else self.first
        if said.step:
            where.update(pairs([("step", said.step)], self.anomalies, number))
        elif said.inner and not said.held_out:
            at, of = (read(text, self.anomalies, f"line {number:,}") or 0.0 for text in said.inner)
            epoch = self.heading.get("epoch") if epoch is None else epoch
            epochs = 0.0 if epoch is None or self.first is None else epoch - min(self.first, 1.0)
            where["step"] = at + max(epochs, 0.0) * of
        return where


def _has_loss(row: Row) -> bool:
    return any(word in name.lower() for name in row for word in LOSS_WORDS)


def _held_out(name: str) -> str:
    named = set(re.split(r"[\W_]+", name.lower()))
    return f"val_{name}" if "loss" in name.lower() and not named & (HELD_OUT | TRAIN) else name


def _rows(lines: Lines, anomalies: Anomalies, _log: Log) -> Iterator[Row]:
    reader = _Reader(anomalies)
    for number, line in lines:
        yield from reader.rows(number, line)
    yield from reader.ended()


def _sure(lines: list[str]) -> bool:
    """A log says the same again and again, of other steps; a text that mentions a loss does not."""
    rows = list(islice(_rows(enumerate(lines, start=1), Anomalies(), Log(iter(()))), 300))
    kinds = Counter(_kind(row) for row in rows)
    if not kinds:
        return False
    kind, count = kinds.most_common(1)[0]
    alike = [row for row in rows if _kind(row) == kind]
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
