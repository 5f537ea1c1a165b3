"""The section of a trial: its verdict, and the twins of each change over unchanged twins, on shared axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from steadyrun.panels.lines import drawn, logarithmic
from steadyrun.panels.panel import FAULT, NONE, AxisScale, Line, Panel, TrialSection
from steadyrun.records import Series
from steadyrun.signals.run_signals import Signals
from steadyrun.store.trial_record import OWN, Gain, TrialRecord, TriedChange, TwinCurve
from steadyrun.text import counted, percent, shown

FIRST = 101  # the number of the first plot, above those of the panels
MOST = 12  # plots
_MOST_TWINS = 8  # lines of one change
_COMPANY = 40  # lines that share the points of a panel: the run's own loss gets 400 points
_TIMES = 2.0  # factor on the highest first loss: the upper end of an axis
_NOTHING = 0.0005  # fraction of what can be learned: printed as 0.0%
_TENTHS = 0.1  # below it a fraction is printed with a decimal
_HUGE = 10.0
_FAR = 1e150  # no axis reaches further
_ROOM = 0.06  # fraction of an axis, above and below

CHANGED, UNCHANGED, RECORDED = "with the change", "nothing changed", "training loss of the run"


def section(trial: TrialRecord, run: Signals) -> TrialSection:
    """A trial on a dashboard."""
    own = _lines(trial.twins(OWN), UNCHANGED, "beside")
    twins = {row.factor: _lines(trial.twins(row.factor), CHANGED, "main") for row in trial.ranked}
    chosen = [row for row in trial.ranked if twins[row.factor]][:MOST]
    every = [*own, *(line for row in chosen for line in twins[row.factor])]
    last = max((int(line.steps[-1]) for line in every), default=trial.steps or 0)
    below = [*_recorded(trial, run, last), *own]
    axis = _axis(every)
    plots = tuple(
        _plot(FIRST + place, row, (*below, *twins[row.factor]), axis, trial) for place, row in enumerate(chosen)
    )
    return TrialSection(
        trial.verdict,
        trial.said,
        trial.fix,
        trial.would_decide,
        _how(trial, bool(plots)),
        last,
        plots,
        tuple(title(row) for row in trial.ranked if row not in chosen),
    )


def title(row: TriedChange) -> str:
    """A change and its gain: "The learning rate divided by 10: better by 52%, 47% to 58%"."""
    words = _capital(row.words) or "A change"
    return f"{words}: {_brings(row.gain)}" if row.gain is not None else f"{words}: {row.note or 'not compared'}"


def _brings(gain: Gain) -> str:
    if abs(gain.mean) < _NOTHING:
        return f"no difference, {_share(gain.low)} to {_share(gain.high)}"
    worse = gain.mean < 0
    mean, low, high = (-gain.mean, -gain.high, -gain.low) if worse else (gain.mean, gain.low, gain.high)
    return f"{'worse' if worse else 'better'} by {_share(mean)}, {_share(low)} to {_share(high)}"


def _share(value: float) -> str:
    if abs(value) >= _HUGE:
        return percent(value)
    return f"{value:.0%}" if abs(value) >= _TENTHS else f"{value:.1%}"


def _capital(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}"


def _how(trial: TrialRecord, has_plots: bool) -> str:
    twins = counted(len(trial.curves), "twin")
    trained = f"{twins} of {counted(trial.steps, 'step')}" if trial.steps is not None else twins
    since = f", from the checkpoint before step {trial.first} of the run" if trial.first else ""
    if not has_plots:
        return f"{trained}{since}."
    scale = "Gains are fractions of what can be learned in these steps, with 95% intervals"
    return f"{trained}{since}. Each plot shows {trial.measured} by step, one line per seed. {scale}."


def _lines(twins: Iterable[TwinCurve], name: str, role: str) -> list[Line]:
    return [
        Line(name, np.array(twin.steps, np.int64), np.array(twin.losses, np.float64), role=role, total=len(twin.steps))
        for twin in list(twins)[:_MOST_TWINS]
    ]


def _recorded(trial: TrialRecord, run: Signals, last: int) -> Iterator[Line]:
    """The recorded training loss of the run at the steps of the twins."""
    if not run.has("loss"):
        return
    loss = run.raw("loss")
    here = (loss.steps >= trial.first) & (loss.steps <= trial.first + last)
    if np.sum(here) > 1:
        series = Series(loss.name, loss.steps[here] - trial.first, loss.values[here], loss.times[here])
        yield drawn(series, RECORDED, company=_COMPANY, role="muted").line


def _axis(lines: list[Line]) -> AxisScale:
    """One axis for all plots. Diverging twins leave it at the top, so that better ones stay visible."""
    log = logarithmic(lines)
    values = [line.values[np.isfinite(line.values) & ((line.values > 0) | (not log))] for line in lines]
    known = np.clip(np.concatenate(values), 1 / _FAR if log else -_FAR, _FAR) if values else np.empty(0)
    if not len(known):
        return AxisScale("loss")
    low, high = float(np.min(known)), float(np.max(known))
    high = min(high, max(low, _TIMES * max(abs(float(each[0])) for each in values if len(each))))
    return AxisScale("loss", log, ends=_wider(low, high, log))


def _wider(low: float, high: float, log: bool) -> tuple[float, float]:
    if log:
        room = 10 ** max(_ROOM * (math.log10(high) - math.log10(low)), 0.01)
        return low / room, high * room
    room = _ROOM * (high - low) or 1.0
    return low - room, high + room


def _plot(number: int, row: TriedChange, lines: tuple[Line, ...], axis: AxisScale, trial: TrialRecord) -> Panel:
    decides = trial.found_fault and row.factor == trial.factor
    return Panel(
        number,
        f"trial-{number - FIRST + 1}",
        title(row),
        "Trial",
        axis,
        lines,
        caption=_caption(row),
        trouble=FAULT if decides else NONE,
    )


def _caption(row: TriedChange) -> str:
    ends = [] if row.loss is None else [f"ends at {shown(row.loss)}"]
    seeds = [counted(row.seeds, "seed")] if row.seeds else []
    note = [row.note] if row.note and row.gain is not None else []
    return ", ".join([*seeds, *ends, *note])
