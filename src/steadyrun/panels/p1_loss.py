"""Panel 1: is the model learning?"""

from __future__ import annotations

import math

from steadyrun.panels.lines import Drawn, drawn, logarithmic
from steadyrun.panels.panel import AxisScale, Panel, Rule
from steadyrun.panels.panel_findings import finished
from steadyrun.panels.rank_lines import rank_lines
from steadyrun.questions.facts import known_facts
from steadyrun.report.report import Report
from steadyrun.signals.missing import HOW_TO_RECORD
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown

_WINDOW = 20  # steps that the loss is averaged over


def build(run: Signals, report: Report) -> Panel:
    """Training and validation loss with the baseline and the loss of guessing; log scale unless negative."""
    over_ranks = rank_lines(run, report, "loss", "train")
    train = over_ranks.median if over_ranks else drawn(run.raw("loss"), "train") if run.has("loss") else None
    val = drawn(run.raw("val_loss"), "validation", shape="step") if run.has("val_loss") else None
    lines = tuple(series.line for series in (train, val) if series is not None)
    lines += over_ranks.single if over_ranks else ()
    panel = Panel(
        1,
        "loss",
        "Is the model learning?",
        "Loss",
        AxisScale("loss", log=logarithmic(lines)),
        lines,
        bands=over_ranks.bands if over_ranks else (),
        rules=tuple(_rules(run, known_facts(run, report.walk.limits).classes)),
        missing="" if train or val else HOW_TO_RECORD["loss"],
    )
    return finished(panel, run, report, _summary(run, train, val))


def _rules(run: Signals, chosen_among: int | None) -> list[Rule]:
    baseline = run.declared("baseline_loss")
    rules = [] if baseline is None or baseline <= 0 else [Rule(baseline, f"baseline {shown(baseline)}")]
    if chosen_among:
        guess = math.log(chosen_among)
        rules.append(Rule(guess, f"uniform guess, ln {chosen_among}", "dotted"))
    return rules


def _summary(run: Signals, train: Drawn | None, val: Drawn | None) -> str:
    said = []
    loss = run.maybe("loss")
    if train and loss is not None:
        last = loss.mean_until(loss.steps[-1], _WINDOW)
        said.append(
            f"training loss {shown(loss.values[0])} at the start, {shown(last)} at the end (mean of {_WINDOW} steps)"
        )
    if val and val.extent:
        said.append(f"validation loss {shown(val.extent.last)} at the end{_against_baseline(run, val.extent.last)}")
    text = "; ".join(said)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _against_baseline(run: Signals, loss: float) -> str:
    baseline = run.declared("baseline_loss")
    if baseline is None:
        return ""
    return f", {'below' if loss < baseline else 'above'} the baseline {shown(baseline)}"
