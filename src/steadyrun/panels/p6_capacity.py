"""Panel 6: does the model use its full capacity?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from steadyrun.panels.lines import Drawn, drawn, in_front, natural
from steadyrun.panels.panel import AxisScale, Band, Line, Panel
from steadyrun.panels.panel_findings import finished
from steadyrun.records import Series
from steadyrun.report.report import Report
from steadyrun.signals.declared_schedule import number
from steadyrun.signals.overview import summed
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown

_USUAL = (0.05, 0.10)  # fraction of the hidden units that is usually dead
_ROOM = 0.15  # fraction of the hidden units on the axis at least, so that the band is visible


def build(run: Signals, report: Report) -> Panel:
    """The number of dead hidden units, in total and by block, and of dead attention heads."""
    by_block: dict[str, Drawn] = {}
    units = _total(_blocks(run, by_block), "dead units")
    heads = _total((run.raw(name) for name in run.matching("dead_heads/*")), "dead heads")
    of_units, of_heads = _count(run.inferred, "hidden_units"), _count(run.inferred, "attention_heads")
    blocks, aside = _behind(by_block)
    lines = [*blocks, *([units.line] if units else [])]
    lines += [replace(heads.line, shape="step", axis="right")] if heads else []
    panel = Panel(
        6,
        "capacity",
        "Does the model use its full capacity?",
        "Dead units and heads",
        AxisScale("dead units", top=of_units * _ROOM if of_units else 1.0),
        tuple(lines),
        right=AxisScale("dead heads", top=float(of_heads) or 1.0, counts=True) if heads else None,
        bands=_bands(units, of_units),
        missing="" if lines else "call run.watch(model, optimizer) before the first forward pass of an eager model",
        aside=aside,
    )
    return finished(panel, run, report, _summary(units, heads, of_units, of_heads))


def _total(parts: Iterable[Series], name: str) -> Drawn | None:
    total = summed(name, parts)
    return None if total is None else drawn(total, name)


def _blocks(run: Signals, drawn_too: dict[str, Drawn]) -> Iterator[Series]:
    """The series of the blocks one by one, so that only one is in memory."""
    names = sorted(run.matching("dead_units/*"), key=natural)
    for name in names:
        series = run.raw(name)
        drawn_too[name] = drawn(series, name.removeprefix("dead_units/"), company=len(names))
        yield series


def _behind(blocks: dict[str, Drawn]) -> tuple[tuple[Line, ...], str]:
    """The blocks behind their sum; a single block equals its sum."""
    if len(blocks) < 2:
        return (), ""
    lines, aside = in_front(blocks, lambda extent: extent.high)
    return tuple(line.muted() for line in lines), aside


def _count(inferred: Mapping[str, Any], key: str) -> int:
    by_layer = inferred.get(key)
    counts = [number(value) for value in by_layer.values()] if isinstance(by_layer, dict) else []
    return int(sum(count for count in counts if count))


def _bands(units: Drawn | None, of_units: int) -> tuple[Band, ...]:
    if units is None or not of_units or not len(units.line.steps):
        return ()
    low, high = (share * of_units for share in _USUAL)
    label = f"usual: {_USUAL[0]:.0%} to {_USUAL[1]:.0%} of {of_units} units"
    return (Band(units.line.steps[[0, -1]], np.full(2, low), np.full(2, high), label),)


def _summary(units: Drawn | None, heads: Drawn | None, of_units: int, of_heads: int) -> str:
    parts = [(units, of_units, "hidden units"), (heads, of_heads, "attention heads")]
    said = []
    for line, of, name in parts:
        if line is not None and line.extent is not None:
            of_all = f" of {of}" if of else ""
            most = "" if line.extent.high == line.extent.last else f" (at most {shown(line.extent.high)})"
            said.append(f"{shown(line.extent.last)}{of_all} {name}{most}")
    return f"Dead at the end: {' and '.join(said)}." if said else ""
