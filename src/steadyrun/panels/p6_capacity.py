"""Panel 6: is the model using its full capacity?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from steadyrun.panels.findings import finished
from steadyrun.panels.lines import Drawn, drawn, in_front, natural
from steadyrun.panels.model import Band, Line, Panel, Scale
from steadyrun.questions.form import shown
from steadyrun.records import Series
from steadyrun.report.checking import Report
from steadyrun.signals.overview import summed
from steadyrun.signals.run import Signals
from steadyrun.signals.schedule import number

_USUAL = (0.05, 0.10)  # of the hidden units: the specification's few dead ones
_ROOM = 0.15  # of the hidden units: shown at least, so that the band is seen


def build(run: Signals, report: Report) -> Panel:
    """How many hidden units are dead, in all and by block, and how many attention heads."""
    recorded = {name: run.raw(name) for name in sorted(run.matching("dead_units/*"), key=natural)}
    units = _total(recorded.values(), "dead units")
    heads = _total((run.raw(name) for name in run.matching("dead_heads/*")), "dead heads")
    of_units, of_heads = _count(run.inferred, "hidden_units"), _count(run.inferred, "attention_heads")
    blocks, aside = _by_block(recorded)
    lines = [*blocks, *([units.line] if units else [])]
    lines += [replace(heads.line, shape="step", axis="right")] if heads else []
    panel = Panel(
        6,
        "capacity",
        "Is the model using its full capacity?",
        "Dead units and heads",
        Scale("dead units", top=of_units * _ROOM if of_units else 1.0),
        tuple(lines),
        right=Scale("dead heads", top=float(of_heads) or 1.0, counts=True) if heads else None,
        bands=_bands(units, of_units),
        missing="" if lines else "call run.watch(model, optimizer) before the first forward pass of an eager model",
        aside=aside,
    )
    return finished(panel, run, report, _seen(units, heads, of_units, of_heads))


def _total(parts: Iterable[Series], name: str) -> Drawn | None:
    total = summed(name, parts)
    return None if total is None else drawn(total, name)


def _by_block(recorded: dict[str, Series]) -> tuple[tuple[Line, ...], str]:
    if len(recorded) < 2:
        return (), ""
    count = len(recorded)
    each = {name: drawn(s, name.removeprefix("dead_units/"), company=count) for name, s in recorded.items()}
    lines, aside = in_front(each, lambda extent: extent.high)
    return tuple(line.muted() for line in lines), aside


def _count(inferred: Mapping[str, Any], key: str) -> int:
    found = inferred.get(key)
    counts = [number(value) for value in found.values()] if isinstance(found, dict) else []
    return int(sum(count for count in counts if count))


def _bands(units: Drawn | None, of_units: int) -> tuple[Band, ...]:
    if units is None or not of_units or not len(units.line.steps):
        return ()
    low, high = (share * of_units for share in _USUAL)
    label = f"usual: {_USUAL[0]:.0%} to {_USUAL[1]:.0%} of {of_units} units"
    return (Band(units.line.steps[[0, -1]], np.full(2, low), np.full(2, high), label),)


def _seen(units: Drawn | None, heads: Drawn | None, of_units: int, of_heads: int) -> str:
    parts = [(units, of_units, "hidden units"), (heads, of_heads, "attention heads")]
    said = []
    for each, of, name in parts:
        if each is not None and each.extent is not None:
            of_all = f" of {of}" if of else ""
            most = "" if each.extent.high == each.extent.last else f" (at most {shown(each.extent.high)})"
            said.append(f"{shown(each.extent.last)}{of_all} {name}{most}")
    return f"Dead at last: {' and '.join(said)}." if said else ""
