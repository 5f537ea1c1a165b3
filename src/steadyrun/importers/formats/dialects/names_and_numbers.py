"""Any line with names and numbers: `step 10 loss: 2.3 lr=1e-4`, `Epoch [3][50/70] loss: 0.9`, `D_A: 0.28 G_A: 0.84`.

Lines that only say where a run is (`Epoch 3/10`, `[step=10/500]`) hold for the lines below them. Redrawings of a
progress bar at the same place are one point, the last of them. Of several ranks the first that prints is read. Values
that stand once, and nowhere in particular, are settings of the run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from math import isfinite

from steadyrun.importers.formats.dialects.dialect import Dialect, Lines, read
from steadyrun.importers.formats.dialects.line_template import TOKEN, Template, learnt, normal
from steadyrun.importers.formats.dialects.printed_names import count_word, has_loss, is_noun, measured, title_of
from steadyrun.importers.formats.dialects.row_places import AXIS, BELOW, INNER, LOOSE, TOTAL, Steps, in_epochs
from steadyrun.importers.formats.dialects.unnamed_counts import counter_of
from steadyrun.importers.formats.jsonfile import parsed, row_of_line
from steadyrun.importers.log_rows import WIDEST, Anomalies, Log, Row
from steadyrun.importers.number_text import ANY, changed
from steadyrun.importers.series_roles import HELD_OUT, RUN_COUNT, STARTS, TRAIN

_AHEAD = 2_000  # rows in which it is looked for what repeats, before any is handed over
_REPEATED = 3  # a name that is printed this often nowhere in particular is a series, less often a setting
_MEASURED = 10  # values of a metric without a step, in lines with a time: they are a course, fewer are a result
_CLOCK, _FRONT = re.compile(r"\d\d:\d\d:\d\d"), 40  # characters of a line in which a logger prints the time
_LOOKED_AT = 5_000  # rows, until a log is recognised by what it repeats
_PREPARES = re.compile(r"\| \d++/\d++ \[[^\]]{0,60}? (?:examples|tables|files|shards|[kMG]?i?B)/s\]")  # no steps
_MOST_SHAPES = 2**22  # characters of the shapes of lines that are remembered
_FIELD = re.compile(rf"^\s\W*+([A-Za-z][\w ./()@-]*+)\s*+[:=]\s*+({ANY})\s*$", re.I)
_DUMP = re.compile(r"\b[A-Z]\w{2,40}\([\d, ]{0,40}\w{1,60}=")  # `Namespace(lr=0.1, …`, `Conv2d(3, 16, bias=`: settings
_WORTH = re.compile(  # what a line has to have, so that it is looked at more closely
    r"[:=][\s'\"\[(]{0,3}[-+.\dni]|loss|cost|xent|ep|step|iter|batch|update|lr|norm|acc|rate|score|reward|ppl|\bis |"
    r"\b(?:fold|seed|trial|run|repeat|stage)\b",
    re.I,
)
_COUNT = r"(?<![a-z])(?:epoch|ep|step|iter|iters|iteration|episode|episode num|update|batch)s?\W{0,4}\d"
_PLACE = re.compile(_COUNT, re.I)
_PREFIX = re.compile(  # of a logger: `I1217 06:19:28.37 1370 train.py:298] `, `INFO:tensorflow:`
    r"(?:[IWEF]\d{4} \d\d:\d\d:\d\d(?:\.\d{1,9})?\s{1,9}\d{1,20} [\w./<>-]{1,120}:\d{1,6}\] |"
    r"(?:DEBUG|INFO|WARNING|ERROR):[\w.]{1,120}:)"
)
_BANNER = re.compile(  # `=== Training Loss (Fri May 28 15:43:51 2021) ===`: printed once by every start of a program
    rf"^\s*+(?P<rule>[=*#~-])(?P=rule){{2,}}+(?![^\n]{{0,200}}?\b(?:{'|'.join(sorted(HELD_OUT))})\b)"
    r"(?=[^\n]{0,200}?\b(?:19|20)\d\d\b)(?=[^\n]{0,200}?\d\d:\d\d)[^\n]{0,200}?(?P=rule){3}\s*+$", re.I
)  # fmt: skip
_FLAG = re.compile(r"[=:] ?(?:None|True|False)\b")
_FRACTION = re.compile(r"^\s*+(\d++)\s*+/\s*+\d++\s*+")

_WEIGHTS = frozenset({"weight", "weights", "coef", "coefficient", "lambda", "multiplier", "smoothing", "factor"})

_RECORDS = frozenset({"best", "lowest", "highest", "min", "max", "minimum", "maximum"})


@dataclass
class LineReader:
    """What is remembered from line to line."""

    anomalies: Anomalies
    shapes: dict[str, Template] = field(default_factory=dict)
    remembered: int = 0  # characters of them
    heading: dict[str, float] = field(default_factory=dict)  # where the lines below a heading stand
    block: dict[str, float] = field(default_factory=dict)  # fields of indented lines below a heading
    total: float = -1.0  # how many steps training counts, in an epoch or in all
    titled: str = ""  # what evaluation a title above is of: `val`, `test`, `dev`
    under: set[str] = field(default_factory=set)  # names below that title
    bar: tuple[tuple[float | None, ...], dict[str, float]] | None = None  # a bar that may be drawn again
    drawn: tuple[float | None, float, bool] | None = None  # epoch and length of the first bar in it; has it ended?
    ranks: dict[tuple[str, ...], str] = field(default_factory=dict)  # names: the rank that is read
    above: dict[str, str] = field(default_factory=dict)  # fold, seed and so on, as they were printed last
    begun: dict[str, float] = field(default_factory=dict)  # how often that changed, how often the program started

    def rows(self, number: int, line: str) -> Iterator[Row]:
        """The rows that are whole after this line."""
        line = changed(line)
        if (prefix := _PREFIX.match(line)) is not None:
            line = line[prefix.end() :]
        indented = self.heading and line[:1].isspace()
        if indented and (match := _FIELD.match(line)) and not _PLACE.search(match[1]):
            value = read(match[2], self.anomalies, f"line {number:,}")
            self.block.update({} if value is None else self._below_title({" ".join(match[1].split()): value}))
            return
        if self.block:
            yield from self.ended()
        if '":' in line and isinstance(entry := parsed(line[line.find("{") : line.rfind("}") + 1]), dict):
            entry = {key: _counted(key, said) for key, said in entry.items()}
            row = _with_counts(row_of_line(entry, self.anomalies, f"line {number:,}"))
            placed = any(count_word(name) for name in row)
            if any(has_loss(name) or (placed and measured(name)) for name in row):
                yield row
            return
        if _PREPARES.search(line):
            return
        if _BANNER.match(line):
            self.begun[STARTS] = self.begun.get(STARTS, 0.0) + 1
            return
        plain = normal(line)
        parts = TOKEN.split(plain)
        if len(parts) == 1:
            self.titled = title_of(line)
            self.under.clear()
            return
        said = self._template(plain, parts)
        if said.above is not None:
            self._counted_above(said.above[0], parts[1::2][said.above[1]])
        if said.values or said.heading:
            yield from self._row(said, parts[1::2], number)

    def _counted_above(self, word: str, text: str) -> None:
        """Another fold or seed, or the same one."""
        if self.above.get(word) != text:
            self.above[word] = text
            self.begun[RUN_COUNT] = self.begun.get(RUN_COUNT, 0.0) + 1

    def _template(self, line: str, parts: list[str]) -> Template:
        shape = "\0".join((str(len(parts)), *parts[::2]))  # a line may hold zero bytes of its own
        known = self.shapes.get(shape)
        if known is None:
            self.remembered += len(shape)
            if self.remembered > _MOST_SHAPES:
                self.shapes.clear()
                self.remembered = len(shape)
            other = not _WORTH.search(line) or _DUMP.search(line) or len(_FLAG.findall(line)) > 1
            known = self.shapes[shape] = Template() if other else learnt(line, parts)
        return known

    def _row(self, said: Template, texts: list[str], number: int) -> Iterator[Row]:
        where = self._where(said, texts, number)
        total = where.get(TOTAL, self.total)
        own = not said.counted or total != self.total >= 0
        batches = said.held_out and said.total is not None and own  # an evaluation counts its own batches
        if batches:
            at, of = where.pop("step", 0.0), where.pop(TOTAL if said.counted else INNER, 0.0)
            if at < of - 1:
                return  # the last line of an evaluation is its result
        else:
            self.total = total
        row = self._values(said, texts, number, averaged=batches)
        if said.bar and not said.held_out and self._evaluates(where):
            if where.pop("step") < where.pop(INNER):
                return
            row = {f"val_{name}" if measured(name) and not _words(name) & (HELD_OUT | TRAIN) else name: value
                   for name, value in row.items()}  # fmt: skip
        losses = any(has_loss(name) for name in row)
        if where and not losses and said.heading and not said.bar:
            above = {} if "epoch" in where else {name: self.heading[name] for name in self.heading if name == "epoch"}
            self.heading = {**above, **where}
        if not row or self._further_rank(said, texts, number):
            return
        if where:
            self.titled = ""
        row = self._below_title(row)
        if said.record and not where:
            row = {name if _words(name) & _RECORDS else f"best_{name}": value for name, value in row.items()}
        if not all(map(isfinite, row.values())):  # before the first result the best is infinite
            row = {name: value for name, value in row.items() if isfinite(value) or not _words(name) & _RECORDS}
        placed = dict(where or self.heading)
        if "epoch" in self.heading and "epoch" not in placed:
            placed["epoch"], placed[BELOW] = self.heading["epoch"], 1.0
        if not where:
            placed[LOOSE] = 1.0
        elif losses and "step" in where:  # lines below it stand here
            self.heading = {name: value for name, value in self.heading.items() if name == "epoch"}
        if "epoch" in where and self.heading.get("epoch", where["epoch"]) != where["epoch"]:
            self.heading = {"epoch": where["epoch"]}  # the heading above is of another epoch
        yield from self._drawn(said, {**self.begun, **placed, **row})

    def _evaluates(self, where: dict[str, float]) -> bool:
        """Whether a bar of another length follows the whole bar of its epoch: an evaluation without a word for it."""
        at, length = where.get("step"), where.get(INNER)
        epoch = where.get("epoch", self.heading.get("epoch", self.drawn[0] if self.drawn else None))
        if at is None or length is None or epoch is None:
            return False
        if self.drawn and self.drawn[0] == epoch and self.drawn[1] != length:
            return self.drawn[2]
        self.drawn = (epoch, length, at >= length)
        return False

    def _below_title(self, row: dict[str, float]) -> dict[str, float]:
        """Values below `Validation:`, named so; a name that comes again is of something else."""
        if self.under & row.keys():
            self.titled = ""
        if not self.titled:
            return row
        self.under |= row.keys()
        return {f"{self.titled}_{name}" if measured(name) and not _words(name) & (HELD_OUT | TRAIN) else name: value
                for name, value in row.items()}  # fmt: skip

    def _where(self, said: Template, texts: list[str], number: int) -> dict[str, float]:
        """Epoch and step of a line."""
        where: dict[str, float] = {}
        long = TOTAL if said.counted else INNER
        for name, index in (("epoch", said.epoch), ("step", said.step), (long, said.total)):
            value = None if index is None else read(texts[index], self.anomalies, f"line {number:,}")
            if value is not None and (name == "epoch" or value == value // 1):
                where[name] = value
        if len(said.others) > 1 and said.step in said.others and "step" in where and "epoch" in where:
            counts = (read(texts[index], self.anomalies, f"line {number:,}") for index in said.others)
            where["step"] = max(count for count in counts if count is not None)  # the one through all epochs
        return where

    def _values(self, said: Template, texts: list[str], number: int, averaged: bool) -> dict[str, float]:
        row: dict[str, float] = {}
        for name, index in said.values:
            text = texts[said.averages.get(index, index) if averaged else index]
            try:
                row[name] = float(text)
                if row[name] - row[name] == 0.0:
                    continue
            except ValueError:
                pass
            row.pop(name, None)  # not an everyday number: spelled in another way, too large, infinite
            value = read(text, self.anomalies, f"line {number:,}")
            if value is not None:
                row[name] = value
        for name, index in said.values if said.divisors else ():
            of = read(texts[said.divisors[index]], self.anomalies, "") if index in said.divisors else 1.0
            if name in row and of:
                row[name] /= of
        return row

    def _further_rank(self, said: Template, texts: list[str], number: int) -> bool:
        """Whether a line is another rank's: of those that print the same names the first is read."""
        if said.rank is None:
            return False
        rank = said.rank if isinstance(said.rank, str) else texts[said.rank]
        names = tuple(name for name, _ in said.values)
        if len(self.ranks) < WIDEST and self.ranks.setdefault(names, rank) != rank:
            self.anomalies.note(
                "lines of further ranks", f"left out, rank {self.ranks[names]} is read", f"line {number:,}"
            )
            return True
        return False

    def ended(self) -> Iterator[Row]:
        """What is left when a block, or the log, ends."""
        if self.block:
            yield {**self.begun, **self.heading, **self.block}
            self.block = {}
        if self.bar:
            yield self.bar[1]
            self.bar = None

    def _drawn(self, said: Template, row: dict[str, float]) -> Iterator[Row]:
        key = (row.get("step"), row.get(INNER), row.get("epoch")) if said.bar else None
        if self.bar and self.bar[0] != key:
            yield self.bar[1]
            self.bar = None
        if key:
            self.bar = (key, row)
        else:
            yield row


def _counted(key: object, said: object) -> object:
    """A value of JSON; of a count that names its end, `"epoch": "3/200"`, the count."""
    fraction = _FRACTION.fullmatch(said) if isinstance(said, str) and count_word(str(key)) else None
    return fraction[1] if fraction else said


def _with_counts(row: dict[str, float]) -> dict[str, float]:
    """A row whose counts may be nested: `metadata/epoch_num` is the epoch."""
    nested = {name: count_word(name.rpartition("/")[2]) for name in row if "/" in name}
    names = {name: "epoch" if word == "epoch" else "step" for name, word in nested.items() if word}
    return {names.get(name, name): value for name, value in row.items()}


def _evaluates(name: str) -> bool:
    return bool(_words(name) & HELD_OUT)


def _words(name: str) -> set[str]:
    return set(re.split(r"[\W_]+", name.lower()))


class _Settings:
    """Tells the settings of a run from its series."""

    def __init__(self, ahead: list[Row]) -> None:
        self.loose = Counter(name for row in ahead if LOOSE in row for name in row)
        self.placed = Counter(name for row in ahead if LOOSE not in row for name in row)
        self.begun = False
        self.at: tuple[float | None, float | None] = (None, None)  # epoch and step of the last line with a place
        self.given: set[str] = set()  # what lines with a place say there

    def left_out(self, row: Row, known: bool) -> dict[str, float]:
        """A row without settings; `known`: its names were counted before."""
        loose = LOOSE in row
        counts = self.loose if loose else self.placed
        if not known and len(counts) < WIDEST:
            counts.update(row.keys())
        row = self._summed_up(row) if loose else self._stands(row)
        kept = {name: value for name, value in row.items() if name in AXIS or self._kept(name, row, loose)}
        self.begun = self.begun or not loose
        return kept if any(name not in AXIS for name in kept) else {}

    def _stands(self, row: Row) -> Row:
        """A row with a place; values of a whole epoch get other names than those that its last step has."""
        at = (row.get("epoch", self.at[0]), row.get("step", self.at[1]))
        if at != self.at:
            self.at = at
            self.given.clear()
        if "step" not in row and at[1] is not None:
            again = {name for name in row if name in self.given and not _evaluates(name)} - set(AXIS)
            row = {f"epoch_{name}" if name in again else name: row[name] for name in row}
        self.given.update(row)
        return row

    def _summed_up(self, row: Row) -> Row:
        """A row below the steps of an epoch; what comes again and again is of the whole epoch."""
        if row.get("epoch", self.at[0]) != self.at[0]:
            return row
        again = {name for name in row if name in self.given and self.loose[name] >= _REPEATED and not _evaluates(name)}
        again -= set(AXIS)
        self.loose.update({f"epoch_{name}": self.loose[name] for name in again if f"epoch_{name}" not in self.loose})
        return {f"epoch_{name}" if name in again else name: row[name] for name in row}

    def _kept(self, name: str, row: Row, loose: bool) -> bool:
        if not loose:
            return is_noun(name) or has_loss(name) or self.placed[name] > 1
        if name in self.given and row.get("epoch", self.at[0]) == self.at[0]:
            # A summary is not the value of the last step; the result of an evaluation is, behind its own batches.
            return _evaluates(name) and self.loose[name] >= _REPEATED
        metric = (has_loss(name) or is_noun(name)) and not _words(name) & _WEIGHTS
        here = metric and (self.begun or "epoch" in row or "step" in row)
        return here or self.loose[name] >= _REPEATED or self.placed[name] > 1


def _rows(lines: Lines, anomalies: Anomalies, log: Log) -> Iterator[Row]:
    read_rows = in_epochs(_read_rows(lines, anomalies))
    ahead = list(islice(read_rows, _AHEAD))
    steps, settings = Steps(ahead), _Settings(ahead)
    names = {name for row in ahead for name in row}
    for objective in ("cost", "total"):
        plain = next((name for name in names if name.lower() == objective), None)
        if plain is not None and not any(has_loss(name) and not _words(name) & HELD_OUT for name in names - {plain}):
            log.roles["loss"] = plain
    if not any("step" in row or "epoch" in row for row in ahead) and (counter := counter_of(ahead)) is not None:
        log.roles["step"] = counter
    count = len(ahead)
    for index, row in enumerate(chain(ahead, read_rows)):
        kept = settings.left_out(row, index < count)
        if kept:
            yield steps.counted(kept)


def _read_rows(lines: Lines, anomalies: Anomalies) -> Iterator[Row]:
    reader = LineReader(anomalies)
    for number, line in lines:
        yield from reader.rows(number, line)
    yield from reader.ended()


def _sure(lines: list[str]) -> bool:
    """A log says the same again and again, of other steps; a text that mentions a loss does not."""
    places: dict[tuple[str, bool], set[tuple[float | None, ...]]] = {}
    log = Log(iter(()))
    for row in islice(_rows(enumerate(lines, start=1), Anomalies(), log), _LOOKED_AT):
        counter = log.roles.get("step", "step")
        names = [name for name in row if name not in AXIS and name != counter]
        about = next((name for name in names if has_loss(name)), next(iter(names), counter))
        placed, loss = counter in row or "epoch" in row, has_loss(about)
        alike = places.setdefault((about, placed), set())
        alike.add((row.get("epoch"), row.get(counter)) if placed else tuple(row.values()))
        if len(alike) >= (2 if placed and loss else _REPEATED) and (placed or loss):
            return True
        if len(alike) >= _MEASURED and measured(about) and _timed(lines):
            return True
    return False


def _timed(lines: list[str]) -> bool:
    """Whether most lines have a time of day, so that they stand in the order in which they were printed."""
    return sum(_CLOCK.search(line[:_FRONT]) is not None for line in lines) > len(lines) / 2


_NOUNS = (
    "reward", "return", "score", "accuracy", "acc", "bleu", "f1", "auc", "dice", "wer", "cer", "ppl", "perplexity",
    "error",
)  # fmt: skip
_METRIC = rf"(?<![a-z])(?:{'|'.join((*_NOUNS, *sorted(TRAIN | HELD_OUT)))})\b.{{0,30}}?[\s:=(]{ANY}"

_PAIRS = r"(?<![\w.])\w{1,40}+=\d{1,15}+,?\s.{0,80}?[\w)]=-?\d{1,15}\.\d"  # `cycle=3 utility=0.5`

DIALECT = Dialect(
    "text",
    "text with names and numbers",
    re.compile(
        rf"^.{{0,500}}?(?:(?:loss|xent|cost).{{0,80}}?{ANY}|{_COUNT}.{{0,200}}?[\w)]\s?[:=]\s{{0,9}}[\[(]?{ANY}|{_METRIC}|{_PAIRS})",
        re.I,
    ),
    _rows,
    sure=_sure,
    last_resort=True,
)
