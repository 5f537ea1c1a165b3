"""Names and numbers, epochs and steps, within a line of text that somebody wrote for people."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from steadyrun.importers.numbers import ANY
from steadyrun.importers.words import HELD_OUT, TRAIN

_QUALIFIER = (
    r"(?:train(?:ing)?|val(?:id(?:ation)?)?|eval(?:uation)?|test|dev|total|avg|average|mean|running|lm|cross|ce|nll|loss|"
    r"grad(?:ient)?|global|learning|current|l2|dynamic|smoothed|best|min|max|epoch|batch)"
)
_END = r"(?![A-Za-z_]*\d|\d*[:/]\d|\.\d)"  # no half of a time, a fraction or an identifier
_PAIR = re.compile(rf"(?<![\w/.])((?:{_QUALIFIER} )*[A-Za-z_][\w./@'()-]*)\s*[:=]\s*\[?\(?({ANY}){_END}", re.I)
_WORD = re.compile(
    rf"(?<![\w/.])((?:{_QUALIFIER} )*(?:[\w./-]*loss(?:[_/.][\w./-]+)?|lr|learning[ _]rate|grad[ _]norm|"
    rf"gradient norm|gnorm|norm|ppl|perplexity))\s+(?:is |of |= )?({ANY}){_END}",
    re.I,
)
_LITGPT = re.compile(r"\bloss train(?: \(curr\))?[: ]\s*([^\s,]+), val(?: \([^)]*\))?[: ]\s*([^\s|,]+)")
_MARK = re.compile(
    rf"(?:(?<=^)|(?<=[\s\[|(*=-]))({'|'.join(sorted(TRAIN | HELD_OUT))})(?=[\s\])|:(]|$)(?! ?loss)", re.I
)

_N = r"(\d+(?:,\d{3})*)(?!\d*\.\d)"
_OF = rf"{_N}(?:\s*/\s*(\d[\d,]*))?"
_COUNTS = (
    ("num_updates", re.compile(rf"\bnum_updates\s*[:= ]\s*{_OF}", re.I)),
    ("global_step", re.compile(rf"(?<![/\w-])(?:global[ _]?steps?|current[ _]steps?)\s*[:=#\[(]?\s*{_OF}", re.I)),
    ("iter", re.compile(rf"(?<![/\w-])(?:iter(?:ation)?s?|it|acc_iter)\s*[:=#\[(]?\s*{_OF}(?!\s*it/s)", re.I)),
    ("step", re.compile(rf"(?<![/\w-])(?:steps?|update)\s*[:=#\[(]?\s*{_OF}", re.I)),
    ("batch", re.compile(rf"(?<![/\w-])(?:batch|mini-?batch|i)\s*[:=#\[(]?\s*{_OF}(?![\w.])", re.I)),
)
_EPOCH = re.compile(
    r"(?<![\w/])(?:epochs?|ep|e)(?:\(train\)|\(val\))?\s*[:=#]?\s*[\[(]?\s*(\d+(?:\.\d+)?)(?![\w.]*\.\d)(?:\s*/\s*\d+)?\s*[\])]?",
    re.I,
)
_TRAIN = re.compile(
    r"(?<!\w)train(?:ing)?\s*:\s*(\d+)(?:/\d+ \([^)]*\))?(?=\s*\[)", re.I
)  # timm: `Train: 0 [ 50/1251 (4%)]`
_INNER = re.compile(r"\[\s*(\d[\d,]*)\s*/\s*(\d[\d,]*)(?:\s*\([^)]*\))?\s*\]|(?<=:)\s+(\d+) / (\d+)\s")
_BAR = re.compile(r"(?:\||%\s|━)\s*(\d+)/(\d+)\s*(?:\[|\d+:\d)")
_ESPNET = re.compile(r"(?<!\d)(\d+)epoch:train:\d+-(\d+)batch")
_ESPNET_END = re.compile(r"(?<!\d)(\d+)epoch results:")
_FRONT = re.compile(rf"^\W*{_OF}\s*(?:[|:\]]|\s-\s)")
_AVERAGE = re.compile(rf"\s*\(\s*({ANY})\s*\)")


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
    line = _LITGPT.sub(r"train loss: \1, val loss: \2", line)
    said = Phrase()
    marks = [(found.start(), found[1].lower() in HELD_OUT) for found in _MARK.finditer(line)]
    found = sorted([*_PAIR.finditer(line), *_WORD.finditer(line)], key=lambda each: each.start(1))
    first = found[0].start() if found else len(line)
    said.held_out = next((held for at, held in marks if at <= first), False)
    _where(line, said)
    for each in found:
        held = next((held for at, held in reversed(marks) if at < each.start()), False)
        text = each[2]
        if held and said.inner is not None and (average := _AVERAGE.match(line, each.end())):
            text = average[1]  # of an evaluation the mean over its batches is meant
        said.pairs.append((_named(each[1], held), text))
    return said


def _named(name: str, held: bool) -> str:
    """A name, with `val_` in front where the line is about an evaluation and the name does not say so."""
    words = set(re.split(r"[\W_]+", name.lower()))
    return f"val_{name}" if held and "loss" in name.lower() and not words & (TRAIN | HELD_OUT) else name


def _where(line: str, said: Phrase) -> None:
    if found := _ESPNET.search(line):
        said.epoch, said.step = found[1], found[2]
        return
    epoch = _EPOCH.search(line) or _TRAIN.search(line) or _ESPNET_END.search(line)
    said.epoch = epoch[1] if epoch else None
    bar = _BAR.search(line)
    inner = bar or (_INNER.search(line, epoch.end() if epoch else 0) if epoch or said.held_out else None)
    if inner:
        at, of = (group for group in inner.groups() if group is not None)
        said.inner, said.bar = (at, of), bar is not None
        said.done = int(at.replace(",", "")) >= int(of.replace(",", "")) - 1
    counted = next((found for _, pattern in _COUNTS if (found := pattern.search(line))), None)
    if counted:
        said.step = counted[1]
    elif not epoch and not inner and (front := _FRONT.match(line)):
        said.step = front[1]
