"""Panel 7: does the model learn all classes of examples? Without classes, the program's own metrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from steadyrun.panels.lines import NAMED, Drawn, drawn, family, in_front, logarithmic, natural, short
from steadyrun.panels.panel import AxisScale, Line, Panel
from steadyrun.panels.panel_findings import finished
from steadyrun.report.report import Report
from steadyrun.signals.overview import smoothed
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.success import better
from steadyrun.signals.verb_classes import are_named
from steadyrun.text import percent, shown

_WINDOW = 20  # steps that the loss is averaged over
_FEW = 3  # classes: with more, lines are not smoothed
_SPAN = 50  # steps
_ENOUGH = 100  # points
_LOOKED_AT = 40  # of the program's own series
_SCALE = 10.0  # between the largest values of lines that share an axis
HOW = 'give the losses of classes of examples: run.step(loss, class_losses={"short": …, "long": …})'
_ASKS = "Does the model learn all classes of examples?"
_ASKS_OF_FORMS = "Does the model learn the pattern, or memorise individual forms?"


def build(run: Signals, report: Report) -> Panel:
    """The loss of every class that the user named, on a log scale; validation as steps."""
    train, val = family(run, "class_loss/*"), family(run, "val_class_loss/*", "step")
    lines = {f"train {name}": _kin(line) for name, line in train.items()}
    lines |= {f"val {name}": _kin(line, ", validation") for name, line in val.items()}
    if not lines and run.own:
        return _own(run, report)
    few = len(train) <= _FEW
    shown_lines, aside = in_front(lines, lambda extent: extent.last)
    panel = Panel(
        7,
        "classes",
        _ASKS_OF_FORMS if are_named(run) else _ASKS,
        "Loss by class",
        AxisScale("loss", log=logarithmic(shown_lines)),
        tuple(_with_smoothed(run, shown_lines)) if few else shown_lines,
        missing="" if lines else HOW,
        aside=aside,
    )
    return finished(panel, run, report, _summary(run))


def _own(run: Signals, report: Report) -> Panel:
    """The program's own numbers that share a scale with the first of them: those that measure success come first."""
    ranked = sorted(run.own, key=lambda name: (better(name) == 0, natural(name)))
    lines = {name: drawn(run.raw(name), name, company=len(ranked[:NAMED])) for name in ranked[:_LOOKED_AT]}
    known = {name: line for name, line in lines.items() if line.extent is not None}
    first = next(iter(known.values()), None)
    chosen = [line for line in known.values() if first is not None and _alike(line, first)][:NAMED]
    panel = Panel(
        7,
        "own",
        "What else does the program measure?",
        "Logged values",
        AxisScale(""),
        tuple(line.line for line in chosen),
        missing="" if chosen else HOW,
        aside=f"{len(run.own) - len(chosen)} more in the charts below." if len(run.own) > len(chosen) else "",
    )
    ends = [
        f"{line.line.name} {shown(line.extent.first)} → {shown(line.extent.last)}" for line in chosen if line.extent
    ]
    return finished(panel, run, report, "; ".join(ends))


def _alike(line: Drawn, first: Drawn) -> bool:
    """Whether two lines can share a linear axis."""
    assert line.extent is not None
    assert first.extent is not None
    sizes = [max(abs(each.low), abs(each.high)) for each in (line.extent, first.extent)]
    return min(sizes) * _SCALE >= max(sizes)


def _kin(of_class: Drawn, addition: str = "") -> Drawn:
    name = of_class.line.name
    return replace(of_class, line=replace(of_class.line, name=f"{name}{addition}", kin=name))


def _with_smoothed(run: Signals, lines: tuple[Line, ...]) -> Iterator[Line]:
    """The classes as moving averages: single batches have few examples of each."""
    names = {short(name.removeprefix("class_loss/")): name for name in run.matching("class_loss/*")}
    for line in lines:
        if line.shape == "step" or line.total < _ENOUGH or line.name not in names:
            yield line
            continue
        yield replace(line, role="faint")
        average = smoothed(run.raw(names[line.name]), _SPAN)
        yield replace(drawn(average, line.name).line, kin=line.kin)


def _summary(run: Signals) -> str:
    """The classes at the end of the run; the mean of the last losses if they are recorded at every step."""
    pattern = "class_loss/*" if run.matching("class_loss/*") else "val_class_loss/*"
    points = {name: run.maybe(name) for name in run.matching(pattern)}
    window = _WINDOW if pattern == "class_loss/*" else 1
    start = len(pattern) - 1
    ends = {short(name[start:]): p.mean_until(p.steps[-1], window) for name, p in points.items() if p is not None}
    if not ends:
        return ""
    low, high = min(ends, key=lambda name: ends[name]), max(ends, key=lambda name: ends[name])
    if low == high:
        return f"The loss of {low} ends at {shown(ends[low])}."
    gap = f", {percent(ends[high] / ends[low] - 1)} higher" if ends[low] > 0 else ""
    return f"Loss at the end: lowest {shown(ends[low])} ({low}), highest {shown(ends[high])} ({high}{gap})."
