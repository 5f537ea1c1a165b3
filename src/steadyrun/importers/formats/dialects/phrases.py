"""Names and numbers, epochs and steps, within a line of text that somebody wrote for people."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, field

from steadyrun.importers.numbers import ANY
from steadyrun.importers.words import HELD_OUT, TRAIN

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
    marks = [(found.start(), found[1].lower() in HELD_OUT) for found in _MARK.finditer(line)]
    places = [at for at, _ in marks]
    found = sorted([*_PAIR.finditer(line), *_WORD.finditer(line)], key=lambda each: each.start(1))
    first = found[0].start() if found else len(line)
    said.held_out = next((held for at, held in marks if at <= first), False)
    _where(line, said)
    for each in found:
        before = bisect_left(places, each.start())
        held = before > 0 and marks[before - 1][1]
        text = each[2]
        if held and said.inner is not None and (average := _AVERAGE.match(line, each.end())):
            text = average[1]  # of an evaluation the mean over its batches is meant
        said.pairs.append((_named(_whole(line, each), held), text))
    return said


def _whole(line: str, found: re.Match[str]) -> str:
    """A name with the words before it that belong to it: `learning rate`, `val loss`."""
    start = found.start(1)
    if start < 3 or line[start - 1] != " " or not line[start - 2].isalpha():
        return found[1]
    before = _BEFORE.search(line, max(0, start - _FAR), start)
    return f"{before[0]}{found[1]}" if before else found[1]


def _named(name: str, held: bool) -> str:
    """A name, with `val_` in front where the line is about an evaluation and the name does not say so."""
    if not held or "loss" not in name.lower() or set(_WORDS.split(name.lower())) & (TRAIN | HELD_OUT):
        return name
    return f"val_{name}"


def _where(line: str, said: Phrase) -> None:
    low = line.lower()
    if "epoch:train:" in low and (found := _ESPNET.search(line)):
        said.epoch, said.step = found[1], found[2]
        return
    if found := _TUTORIAL.match(line):
        said.epoch, said.step = found[1], found[2]
        return
    epoch = _epoch(line, low)
    said.epoch = epoch[1] if epoch else None
    bar = _BAR.search(line) if "|" in line or "%" in line or "━" in line else None
    inner = bar or _INNER.search(line, epoch.end() if epoch else 0)
    if inner:
        at, of = (group for group in inner.groups() if group is not None)
        said.inner, said.bar = (at, of), bar is not None
        said.done = int(at.replace(",", "")) >= int(of.replace(",", "")) - 1
    counted = next((found for word, pattern in _COUNTS if word in low and (found := pattern.search(line))), None)
    if counted:
        said.step = counted[1]
    elif not epoch and not inner and (front := _FRONT.match(line)):
        said.step = front[1]


def _epoch(line: str, low: str) -> re.Match[str] | None:
    found = _EPOCH.search(line) if "ep" in low else None
    found = found or (_TRAIN.search(line) if "train" in low else None)
    return found or (_ESPNET_END.search(line) if "epoch results" in low else None)
