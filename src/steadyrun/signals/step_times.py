"""The time of each rank's steps, split into its own work and its waiting for others.

In a synchronous job all ranks take the same time for a step: who is early waits in the passes, which exchange gradients
or shards. On the CPU a thread that waits uses no CPU time, so what a pass takes beyond its CPU time is waiting.
Only durations are used: clocks of different hosts need not agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from steadyrun.signals.curves import Floats
from steadyrun.signals.ranks import DDP, Group, Matrix, Ranks, Steps

_PARTS = ("data", "forward", "backward", "update", "busy")


@dataclass(frozen=True)
class StepTimes:
    """Seconds by step and rank."""

    steps: Steps
    ranks: Group
    whole: Floats
    data: Floats
    compute: Floats

    @property
    def own(self) -> Floats:
        """Data and compute: what is left of the step is waiting."""
        return self.data + self.compute

    @property
    def excess(self) -> Floats:
        """How much longer a rank works than the median of the others."""
        own = self.own
        others = [np.median(np.delete(own, index, axis=1), axis=1) for index in range(len(self.ranks))]
        return own - np.stack(others, axis=1)

    def after(self, steps: int) -> StepTimes:
        """Without the first steps, which compile and warm up."""
        kept = slice(steps, None)
        return StepTimes(self.steps[kept], self.ranks, self.whole[kept], self.data[kept], self.compute[kept])


def own_work(ranks: Ranks) -> Matrix | None:
    """The seconds of data and compute by step and rank; None if the times of steps were not recorded."""
    times = step_times(ranks, ranks.present)
    return None if times is None else Matrix(times.steps, times.ranks, times.own)


def step_times(ranks: Ranks, group: Sequence[int]) -> StepTimes | None:
    """The split of the steps that all ranks of a group have; None if their times were not recorded."""
    names = ("step_time", *(f"time/{part}" for part in _PARTS))
    matrices = {name: ranks.matrix(name).of(group) for name in names}
    members = matrices["time/busy"].ranks
    if len(members) < 2 or any(matrix.ranks != members for matrix in matrices.values()):
        return None
    steps = reduce(np.intersect1d, [matrix.steps[~np.isnan(matrix.values).any(axis=1)] for matrix in matrices.values()])
    values = {name: matrix.values[np.isin(matrix.steps, steps)] for name, matrix in matrices.items()}
    data, forward, update, busy = (values[f"time/{part}"] for part in ("data", "forward", "update", "busy"))
    passes = busy if _waits_in_forward(ranks, members) else np.maximum(forward, busy)
    return StepTimes(steps, members, values["step_time"], data, passes + update)


def _waits_in_forward(ranks: Ranks, group: Group) -> bool:
    """Sharded parameters are exchanged in the forward pass, and DDP broadcasts rank 0's buffers there."""
    return ranks.kind != DDP or any(ranks.of(rank).structure.get("broadcast_buffers") for rank in group)
