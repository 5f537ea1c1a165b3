"""Rules about changes of settings and blocks: with which change does the program soon reach its own last loss?"""

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
# trials a higher rate is often ahead of the right one (3 or 10 times the rate in 11 of 16 healthy programs), so it must
# be ahead by more, a hundredfold one as well, and the program must learn next to nothing without it.
DECIDES, DECIDES_HIGHER = 1 / 3, 0.2
FAR_HIGHER = "rate*100"
MORE_SEEDS = 8  # to try if the seeds so far do not show how many are needed
IDLE = 0.25  # of what can be learned: a program that learns more may be slow, but its rate is not a fault


def setting(table: Table) -> Verdict | None:
    """A change with which the program soon reaches the loss that it ends at without it."""
    return _decided(table, _chosen(table, lambda name: _rank(table, name) < 2 and is_fast(table, name)))


def block(table: Table) -> Verdict | None:
    """A block without which the program soon reaches the loss that it ends at with it."""
    is_block = {name for name in table.curves if table.factor(name).group == kinds.BLOCK}
    return _decided(table, _chosen(table, lambda name: name in is_block and is_fast(table, name)))


def improvement(table: Table) -> Verdict | None:
    """A change that is better for sure, in a program that learns without it."""

    def helps(name: str) -> bool:
        gain = table.gain(name)
        return gain is not None and gain.seeds > 1 and gain.low > 0 and table.teaches(name)

    chosen = _chosen(table, helps) if table.teaches("own") else None
    return None if chosen is None else Verdict(IMPROVEMENT, "", chosen, _facts(table, chosen))


def _decided(table: Table, chosen: str | None) -> Verdict | None:
    """A fault if the seeds agree, else what is missing."""
    if chosen is None:
        return None
    gain, speeds = table.gain(chosen), table.speeds(chosen)
    assert gain is not None
    facts, cause = _facts(table, chosen), _cause(table, chosen)
    if gain.seeds > 1 and max(speeds) < 1 and (gain.low > 0 or (gain.seeds > 2 and max(speeds) <= DECIDES)):
        return Verdict(FAULT, cause, chosen, facts)
    needed, group = seeds_needed(gain), table.factor(chosen).group
    options = "" if group == kinds.USER else f"--only {group} "
    more = f"try it with more seeds: {options}--seeds {needed or MORE_SEEDS}"
    return Verdict(UNDECIDED, cause, chosen, facts, more)


def _chosen(table: Table, wanted: Callable[[str], bool]) -> str | None:
    """Of the changes that help enough, the one that names the cause best."""
    good = {
        name: gain for name in table.curves if table.is_setting(name) and wanted(name) and (gain := table.gain(name))
    }
    named = {name: gain for name, gain in good.items() if _rank(table, name) < 2} or good
    if not named:
        return None
    best = max(gain.mean for gain in named.values())
    deepest = max(table.fall(name) for name in named)  # if the unchanged twin explodes, every change gains nearly all
    near = [
        name
        for name, gain in named.items()
        if gain.mean >= (near := table.factor(name).near_best) * best and table.fall(name) >= near * deepest
    ] or list(named)
    return min(near, key=lambda name: (_rank(table, name), -named[name].mean))


def is_fast(table: Table, name: str) -> bool:
    """Whether a change decides. A higher rate must help by two decades: in short trials one helps healthy programs."""
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
    after = f"after {math.ceil(speed * steps)} of {counted(steps, 'step')}" if speed > 0 else "from the first step on"
    return (
        f"{table.factor(name).words}: the loss ends at {shown(table.mean_end(name))} instead of "
        f"{shown(table.mean_end('own'))}, which it reaches {after} (gain {share(gain.mean)}, {share(gain.low)} to "
        f"{share(gain.high)}, of what can be learned here; {counted(gain.seeds, 'seed')})."
    )


def share(part: float) -> str:
    """A part of what can be learned; beyond all of it, the number says nothing more."""
    return percent(part) if abs(part) <= 1 else ">100%" if part > 0 else "<-100%"
