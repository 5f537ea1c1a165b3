"""Rules about settings and blocks: the change with which the program soon reaches its own last loss."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from steadyrun.text import counted, percent, shown
from steadyrun.trial import factor as kinds
from steadyrun.trial.statistics import seeds_needed
from steadyrun.trial.twin_table import Table
from steadyrun.trial.verdict import FAULT, IMPROVEMENT, UNDECIDED, Verdict

# A change decides if its twin reaches the last loss of the unchanged one within this fraction of the steps. In short
# trials a higher rate often beats the right one (3 or 10 times the rate in 11 of 16 healthy programs), so it must
# lead by more, a hundredfold rate must also lead, and the program must learn almost nothing without it.
DECIDES, DECIDES_HIGHER = 1 / 3, 0.2
FAR_HIGHER = "rate*100"
MORE_SEEDS = 8  # suggested if the number needed is unknown
IDLE = 0.25  # fraction of the attainable fall: a program that learns more may be slow, but its rate is not a fault


def setting(table: Table) -> Verdict | None:
    """A setting with which the program soon reaches its own last loss."""
    return _decided(table, _chosen(table, lambda name: _rank(table, name) < 2 and is_fast(table, name)))


def block(table: Table) -> Verdict | None:
    """A block without which the program soon reaches its own last loss."""
    is_block = {name for name in table.curves if table.factor(name).group == kinds.BLOCK}
    return _decided(table, _chosen(table, lambda name: name in is_block and is_fast(table, name)))


def improvement(table: Table) -> Verdict | None:
    """A change that certainly helps, in a program that learns without it."""

    def helps(name: str) -> bool:
        gain = table.gain(name)
        return gain is not None and gain.seeds > 1 and gain.low > 0 and table.teaches(name)

    chosen = _chosen(table, helps) if table.teaches("own") else None
    return None if chosen is None else Verdict(IMPROVEMENT, "", chosen, _facts(table, chosen))


def _decided(table: Table, chosen: str | None) -> Verdict | None:
    """A fault if the seeds agree, otherwise undecided with what would decide."""
    if chosen is None:
        return None
    gain, speeds = table.gain(chosen), table.speeds(chosen)
    assert gain is not None
    facts, cause = _facts(table, chosen), _cause(table, chosen)
    if gain.seeds > 1 and max(speeds) < 1 and (gain.low > 0 or (gain.seeds > 2 and max(speeds) <= DECIDES)):
        return Verdict(FAULT, cause, chosen, facts)
    needed, group = seeds_needed(gain), table.factor(chosen).group
    options = "" if group == kinds.USER else f"--only {group} "
    more = f"run the trial with {options}--seeds {needed or MORE_SEEDS}"
    return Verdict(UNDECIDED, cause, chosen, facts, more)


def _chosen(table: Table, wanted: Callable[[str], bool]) -> str | None:
    """The change that names the cause best, among those that help enough."""
    good = {
        name: gain for name in table.curves if table.is_setting(name) and wanted(name) and (gain := table.gain(name))
    }
    named = {name: gain for name, gain in good.items() if _rank(table, name) < 2} or good
    if not named:
        return None
    best = max(gain.mean for gain in named.values())
    deepest = max(table.fall(name) for name in named)  # if the unchanged twin diverges, every change gains nearly all
    near = [
        name
        for name, gain in named.items()
        if gain.mean >= (near := table.factor(name).near_best) * best and table.fall(name) >= near * deepest
    ] or list(named)
    return min(near, key=lambda name: (_rank(table, name), -named[name].mean))


def is_fast(table: Table, name: str) -> bool:
    """Whether a change decides. A higher rate must also help at 100 times: in short trials 10 times often helps."""
    higher = name.startswith("rate*") and float(name.partition("*")[2]) > 1
    if higher and not (_reaches(table, FAR_HIGHER, DECIDES_HIGHER) and table.fall("own") < IDLE * table.attainable):
        return False
    return _reaches(table, name, DECIDES_HIGHER if higher else DECIDES) and table.teaches(name)


def _reaches(table: Table, name: str, part: float) -> bool:
    """Whether a change reaches the last loss of the unchanged twin within this fraction of the steps."""
    speeds = table.speeds(name)
    return bool(speeds) and float(np.median(speeds)) <= part


def _rank(table: Table, name: str) -> int:
    if table.factor(name).removes:
        return 0
    return 1 if name.startswith("rate*") else 2


def _cause(table: Table, name: str) -> str:
    if name.startswith("rate*"):
        return "rate-low" if float(name.partition("*")[2]) > 1 else "rate-high"
    return table.factor(name).group


def _facts(table: Table, name: str) -> str:
    gain, speed = table.gain(name), float(np.median(table.speeds(name)))
    assert gain is not None
    steps = max(curve.steps for curve in table.curves[name].values())
    reached = f"reaches after {math.ceil(speed * steps)} of {counted(steps, 'step')}" if speed > 0 else "starts below"
    return (
        f"With {table.factor(name).words} the loss ends at {shown(table.mean_end(name))} instead of "
        f"{shown(table.mean_end('own'))}, which it {reached}. Gain: {share(gain.mean)} of the attainable fall "
        f"({share(gain.low)} to {share(gain.high)}, {counted(gain.seeds, 'seed')})."
    )


def share(part: float) -> str:
    """A fraction of the attainable fall in percent, cut off at ±100%."""
    return percent(part) if abs(part) <= 1 else ">100%" if part > 0 else "<-100%"
