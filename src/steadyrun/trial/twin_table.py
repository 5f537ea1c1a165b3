"""The curves of all twins of a trial, by change and seed, and their statistics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from steadyrun.trial import factor as kinds
from steadyrun.trial.curve import Curve
from steadyrun.trial.statistics import Effect, effect, spread, steps_to

LEARNED = 0.05  # fraction of the first loss: a smaller fall does not count
SAME = 1e-4  # fraction of a loss: rounding alone makes twins differ by this much
PROMISING = 0.6  # fraction of the steps: slower changes get no second seed

_SETTINGS = {
    *(kinds.RATE, kinds.WARMUP, kinds.DECAY, kinds.DROPOUT, kinds.SMOOTHING, kinds.CLIP, kinds.OPTIMIZER),
    *(kinds.START, kinds.PRECISION, kinds.BATCH, kinds.BLOCK, kinds.FUNCTION, kinds.USER),
}


@dataclass(frozen=True)
class Row:
    """One change and its result. `gain` is a fraction of the attainable fall; None if no twin ended."""

    factor: str
    group: str
    words: str
    seeds: int
    loss: float
    gain: Effect | None
    speed: float  # the fraction of the steps after which it reaches the last loss of the unchanged twin
    note: str = ""


@dataclass
class Table:
    """All curves of a trial, by change and seed."""

    split: str
    factors: Mapping[str, kinds.Factor]
    compares: Sequence[bool] = ()  # whether each term of the loss compares something with targets
    moves_freely: str = ""  # why the loss cannot be judged
    curves: dict[str, dict[int, Curve]] = field(default_factory=dict)

    def add(self, curve: Curve) -> None:
        self.curves.setdefault(curve.factor, {})[curve.seed] = curve

    @property
    def own(self) -> dict[int, Curve]:
        return self.curves.get(kinds.OWN_TWIN.name, {})

    def factor(self, name: str) -> kinds.Factor:
        known = self.factors.get(name)
        if known is not None:
            return known
        return kinds.rate_factor(float(name.partition("*")[2])) if name.startswith("rate*") else kinds.OWN_TWIN

    def ends(self, name: str, split: str | None = None) -> list[float]:
        return [curve.end(split or self.split) for _, curve in sorted(self.curves.get(name, {}).items())]

    def mean_and_spread(self, name: str) -> tuple[float, float]:
        """Mean and standard deviation of the last loss between seeds."""
        ends = [end for end in self.ends(name) if math.isfinite(end)]
        return (float(np.mean(ends)), spread(ends)) if ends else (math.nan, math.nan)

    def mean_end(self, name: str, split: str | None = None) -> float:
        ends = self.ends(name, split)
        return float(np.mean(ends)) if ends else math.nan

    def start(self, name: str = "own", split: str | None = None) -> float:
        curves = self.curves.get(name, {}).values()
        firsts = [losses[0] for curve in curves if (losses := curve.losses.get(split or self.split))]
        return float(np.mean(firsts)) if firsts else math.nan

    def lowest(self, name: str, split: str | None = None) -> float:
        """The loss at the best mark, averaged over seeds; NaN if it was not measured."""
        curves = self.curves.get(name, {}).values()
        lows = [
            min(filter(math.isfinite, curve.losses.get(split or self.split, [])), default=math.nan) for curve in curves
        ]
        return float(np.mean(lows)) if lows else math.nan

    def learned(self, name: str, split: str | None = None) -> float:
        """The fall to the best mark as a fraction of the first loss; NaN if it was not measured."""
        start = self.start(name, split)
        return (start - self.lowest(name, split)) / max(abs(start), 1e-12)

    def fall(self, name: str) -> float:
        """The fall below the start of the unchanged twin, since a change may start elsewhere."""
        return self.start("own") - self.mean_end(name)

    def ahead(self, name: str, other: str, split: str | None = None) -> float:
        """How far a twin's lowest loss is below the other's, as a fraction of it; NaN if one was not measured."""
        theirs = self.lowest(other, split)
        return (theirs - self.lowest(name, split)) / max(abs(theirs), LEARNED * abs(self.start("own", split)), 1e-12)

    def is_setting(self, name: str) -> bool:
        return self.factor(name).group in _SETTINGS

    @property
    def attainable(self) -> float:
        """The attainable fall: with the best single change of a setting, or with none."""
        ends = [self.mean_end(name) for name in self.curves if self.is_setting(name) or name == "own"]
        finite = [end for end in ends if math.isfinite(end)]
        start = self.start()
        return start - min(finite) if finite and math.isfinite(start) else math.nan

    def gain(self, name: str) -> Effect | None:
        """The gain over the unchanged twins of the same seeds, as a fraction of the attainable fall."""
        changed = self.curves.get(name, {})
        shared = sorted(set(changed) & set(self.own))
        size = max(self.attainable, LEARNED * abs(self.start()))  # a fraction of almost nothing would be huge
        if not shared:
            return None
        own = [self.own[seed].end(self.split) for seed in shared]
        theirs = [changed[seed].end(self.split) for seed in shared]
        if (
            not all(map(math.isfinite, own)) or not size > 0
        ):  # the unchanged twin fails, so any twin that ends is better
            better = float(
                np.mean([math.isfinite(end) and not math.isfinite(mine) for mine, end in zip(own, theirs, strict=True)])
            )
            return Effect(better, better - 0.5 / len(shared), better, len(shared)) if better > 0 else None
        return effect(own, theirs, spread(self.ends("own")), size)

    def speeds(self, name: str) -> list[float]:
        """By seed, the fraction of the steps after which a change reaches the last loss of the unchanged twin."""
        found = []
        for seed, curve in sorted(self.curves.get(name, {}).items()):
            own = self.own.get(seed)
            level = math.inf if own is None else own.end(self.split)
            if not math.isfinite(level):
                level = next(iter(own.losses.get(self.split, [])), math.inf) if own is not None else math.inf
            worse = not curve.end(self.split) < level
            found.append(math.inf if worse else steps_to(curve, self.split, level) / max(1, curve.steps))
        return found

    def teaches(self, name: str) -> bool:
        """Whether a twin learns, and more than with shuffled targets."""
        if not self.learned(name) > LEARNED:
            return False
        return "targets-shuffled" not in self.curves or self.ahead(name, "targets-shuffled") > LEARNED


def rows_of(table: Table) -> list[Row]:
    """The rows of the table, in the order of the changes."""
    rows = []
    for name, curves in table.curves.items():
        factor, speeds = table.factor(name), table.speeds(name)
        gain = None if name == "own" else table.gain(name)
        speed = float(np.median(speeds)) if speeds and name != "own" else math.nan
        end = table.mean_end(name)
        rows.append(Row(name, factor.group, factor.words, len(curves), end, gain, speed, _note(table, name)))
    return rows


def _note(table: Table, name: str) -> str:
    curves = list(table.curves[name].values())
    raised = next((curve.raised for curve in curves if curve.raised), "")
    if raised:
        return f"raised {raised}"
    stopped = [curve.stopped for curve in curves if curve.stopped is not None]
    if stopped:
        return f"stopped at step {min(stopped)}: far behind"
    if table.factor(name).group != kinds.USER or not _is_same(table, curves):
        return ""
    return "same losses: the present value, or the program does not read it"


def _is_same(table: Table, curves: Sequence[Curve]) -> bool:
    """Whether twins end like the unchanged ones of their seeds."""
    pairs = [
        (curve.end(table.split), table.own[curve.seed].end(table.split)) for curve in curves if curve.seed in table.own
    ]
    return bool(pairs) and all(math.isclose(mine, own, rel_tol=SAME) for mine, own in pairs)


def promising(table: Table) -> list[str]:
    """Settings that may decide and deserve more seeds, the fastest first."""
    speeds = {name: min(table.speeds(name), default=math.inf) for name in table.curves if table.is_setting(name)}
    return sorted((name for name, speed in speeds.items() if speed < PROMISING), key=lambda name: speeds[name])
