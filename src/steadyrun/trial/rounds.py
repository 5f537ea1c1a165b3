"""The rounds of a trial: unchanged twins, every change once, promising changes again, then invasive changes.

Racing stops a change that is far behind, and gives more seeds only to changes that may decide.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from steadyrun.trial.curve import Curve
from steadyrun.trial.decision import decide
from steadyrun.trial.factor import OWN_TWIN, RATE, Factor, rate_factor
from steadyrun.trial.twin_table import Table, promising
from steadyrun.trial.verdict import UNDECIDED

SEEDS = 3
_MOST_SEEDS = 6  # of an undecided change
_FARTHER, _NEARER = (
    (3.0, 10.0, 100.0, 1000.0),
    (1 / 3, 0.1, 0.01, 0.001),
)  # learning rates, each tried if the last one helped
_MOST_PROMISING = 4


@dataclass(frozen=True)
class Request:
    """One twin to train; `own` is the unchanged twin of the same seed."""

    factor: str
    seed: int
    own: Curve | None = None


Train = Callable[[Iterable[Request]], Iterator[Curve]]
"""Trains several twins, in any order, and yields each as it ends."""


@dataclass
class Rounds:
    """The rounds of a running trial."""

    table: Table
    factors: list[Factor]
    train: Train
    deadline: float  # on the clock of time.monotonic
    seeds: int = SEEDS
    racing: bool = True  # otherwise every change gets all seeds
    untried: list[str] = field(default_factory=list)  # because the budget ended

    def run(self) -> None:
        """Run all rounds; `untried` lists the changes beyond the deadline."""
        self._go([Request(OWN_TWIN.name, seed) for seed in range(1, self.seeds + 1)])
        if not self.racing:
            seeds = range(1, self.seeds + 1)
            self._go([Request(factor.name, seed) for factor in self.factors for seed in seeds])
            return
        plain = [factor for factor in self.factors if not factor.invasive]
        self._go([self._request(factor.name, 1) for factor in plain])
        self._go_farther()
        self._again()
        if decide(self.table).kind == UNDECIDED:
            self._go([self._request(factor.name, 1) for factor in self.factors if factor.invasive])
            self._again()
        self._until_decided()

    def _request(self, name: str, seed: int) -> Request:
        """A request that races a setting against its unchanged twin; data and parts train to the end."""
        return Request(name, seed, self.table.own.get(seed) if self.table.is_setting(name) else None)

    def _go(self, requests: list[Request]) -> None:
        wanted = [each for each in requests if each.seed not in self.table.curves.get(each.factor, {})]
        if wanted and self.table.curves and time.monotonic() > self.deadline:
            self.untried += [each.factor for each in wanted if each.factor not in self.untried]
            return
        ended = set()
        for curve in self.train(wanted):
            self.table.add(curve)
            ended.add((curve.factor, curve.seed))
        left = [each.factor for each in wanted if (each.factor, each.seed) not in ended]
        self.untried += [name for name in left if name not in self.table.curves and name not in self.untried]

    def _go_farther(self) -> None:
        """Try the next learning rate while the largest (or smallest) is the best."""
        if not any(factor.group == RATE for factor in self.factors):
            return
        for beyond in (_FARTHER, _NEARER):
            for before, edge, times in zip(beyond, beyond[1:], beyond[2:], strict=False):
                ends = [self.table.mean_end(rate_factor(each).name) for each in (before, edge)]
                if not ends[1] < ends[0] or not ends[1] < self.table.mean_end(OWN_TWIN.name):
                    break
                self._go([self._request(rate_factor(times).name, 1)])

    def _again(self) -> None:
        """Train promising changes with the other seeds."""
        names = promising(self.table)[:_MOST_PROMISING]
        removing = [factor.name for factor in self.factors if factor.removes]
        names += [name for name in promising(self.table) if name in removing and name not in names]
        names += [name for name in self.table.curves if name.startswith("term:")]
        self._go([self._request(name, seed) for name in names for seed in range(2, self.seeds + 1)])

    def _until_decided(self) -> None:
        """Train more seeds of the change that would decide."""
        for seed in range(self.seeds + 1, _MOST_SEEDS + 1):
            verdict = decide(self.table)
            if verdict.kind != UNDECIDED or not verdict.factor:
                return
            self._go([Request(OWN_TWIN.name, seed)])
            self._go([self._request(verdict.factor, seed)])
