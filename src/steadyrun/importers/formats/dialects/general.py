"""Any line with names and numbers and a loss among them: `step 10 loss: 2.3 lr=1e-4`, `Epoch [3][50/70] loss: 0.9`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from steadyrun.importers.formats.dialects.form import Dialect, Lines, pairs
from steadyrun.importers.model import Log, Row
from steadyrun.importers.numbers import ANY
from steadyrun.importers.told import Told

_PAIR = re.compile(
    rf"((?:[A-Za-z_][\w./@-]*)(?: (?:loss|norm|rate|scale|step|steps))?)\s*[:=]\s*\[?({ANY})(?![\w:]*:)", re.I
)
_WORD = re.compile(
    rf"\b((?:(?:train(?:ing)?|val(?:id(?:ation)?)?|eval|test|total|avg|mean|lm) )?loss|lr|learning rate|"
    rf"(?:grad(?:ient)? )?norm|gnorm|ppl|perplexity)\s+(?:is\s+)?({ANY})",
    re.I,
)
_COUNT = re.compile(
    r"\b(global[ _]?step|step|iter(?:ation)?|update|batch)s?\s*[:=#\[(]?\s*(\d[\d,]*)\s*(?:/\s*\d[\d,]*)?", re.I
)
_EPOCH = re.compile(
    r"\b(epoch)\s*[:=#\[(]?\s*(\d+(?:\.\d+)?)\s*(?:/\s*\d+)?\]?(?:\s*\[\s*(\d[\d,]*)\s*/\s*\d[\d,]*)?", re.I
)
_BRACKET = re.compile(r"^\W*\[?\s*(\d[\d,]*)\s*/\s*(\d[\d,]*)\s*\]?")
_LOSS = re.compile(rf"loss\w*\s*(?:[:=]|is)?\s*\(?\[?{ANY}", re.I)
_COUNTED = {"global step": "global_step", "globalstep": "global_step", "iteration": "iteration", "iter": "iter"}


def _rows(lines: Lines, told: Told, _log: Log) -> Iterator[Row]:
    for number, line in lines:
        if len(line) > 4_000 or not _LOSS.search(line):
            continue
        found = {**dict(_WORD.findall(line)), **dict(_PAIR.findall(line))}
        row = pairs(list(found.items()), told, number)
        row = {
            name: value for name, value in row.items() if not _COUNT.fullmatch(f"{name} 1") and name.lower() != "epoch"
        }
        row.update(_where(line, told, number))
        if any("loss" in name.lower() for name in row):
            yield row


def _where(line: str, told: Told, number: int) -> dict[str, float]:
    """Epoch and step of a line."""
    where: list[tuple[str, str]] = []
    if found := _EPOCH.search(line):
        where.append(("epoch", found[2]))
        if found[3]:
            where.append(("iter", found[3]))
    if found := _COUNT.search(line):
        name = found[1].lower()
        where.append((_COUNTED.get(name, name.replace(" ", "_")), found[2]))
    elif not where and (found := _BRACKET.search(line)):
        where.append(("step", found[1]))
    return pairs([(name if name != "batch" else "iter", text) for name, text in where], told, number)


DIALECT = Dialect(
    "text",
    "text with names and numbers",
    re.compile(rf"^[^\n]{{0,300}}\bloss\w*\s*(?:[:=]|is)?\s*\(?\[?{ANY}[^\n]*$", re.M | re.I),
    _rows,
    last_resort=True,
)
