"""Validation beside training, for C4.2 and S1.3."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from steadyrun.signals.curves import Floats, robust_scale
from steadyrun.signals.facts import Facts
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.progress import Progress, progress
from steadyrun.signals.run_signals import Points, Signals

_SEED_LOSS = math.log(512)  # limits for the gap are in nats of a model with this first loss
_REACH = 16  # validations per neighbour on each side of a median


@dataclass(frozen=True)
class Gap:
    """Validation minus smoothed training loss at each validation, and the rise of validation from its best."""

    val: Points
    train: Floats
    unit: float  # one nat of the limits in units of this run's loss

    @property
    def gaps(self) -> Floats:
        return (self.val.values - self.train) / self.unit

    @property
    def best(self) -> int:
        """The index of the best validation: the lowest value around the lowest local median."""
        middle = int(np.argmin(self.middle))
        start = max(0, middle - self.reach)
        return start + int(np.argmin(self.val.values[start : middle + self.reach + 1]))

    @property
    def lowest(self) -> float:
        return float(np.min(self.middle))

    @property
    def stands_out(self) -> tuple[int, float]:
        """The validation that exceeds its neighbours most, and its ratio to the higher neighbour."""
        values = self.val.values
        if len(values) <= 2 or float(np.min(values)) <= 0:
            return 0, 0.0
        times = values[1:-1] / np.maximum(values[:-2], values[2:])
        index = int(np.argmax(times))
        return index + 1, float(times[index])

    @property
    def middle(self) -> Floats:
        """The local median of each validation and its neighbours: a single outlier does not count.

        With many validations the median covers more: the lowest of many is low by chance.
        """
        values = self.val.values
        if len(values) <= 2:
            return values
        reach = self.reach
        padded = np.concatenate([np.full(reach, values[0]), values, np.full(reach, values[-1])])
        middle: Floats = np.median(sliding_window_view(padded, 2 * reach + 1), axis=1)
        return middle

    @property
    def reach(self) -> int:
        return max(1, len(self.val) // _REACH)

    @property
    def noise(self) -> float:
        """The standard error of such a median relative to the best, from the scatter of neighbours."""
        moves = np.diff(self.val.values)
        if len(moves) <= 2 or not self.lowest:
            return 0.0
        scatter = robust_scale(moves).spread / math.sqrt(2)
        return scatter / math.sqrt(2 * self.reach + 1) / abs(self.lowest)

    @property
    def rise(self) -> float:
        """The rise of the last validations from the best, relative to it; the lower of the last two counts."""
        lowest = self.lowest
        last = float(np.min(self.middle[-2:])) if int(np.argmin(self.middle)) < len(self.val) - 2 else lowest
        return (last - lowest) / abs(lowest) if lowest else 0.0

    @property
    def lost(self) -> float:
        """The fraction of the fall from the first validation that is lost again; infinite if it never fell."""
        fall, back = float(self.val.values[0]) - self.lowest, self.rise * abs(self.lowest)
        return back / fall if fall > 0 else math.inf

    @property
    def train_fell_since(self) -> bool:
        return bool(self.train[-1] < self.train[self.best])


def gap_of(run: Signals, known: Facts, fewest: float) -> Gap:
    """The gap at every validation within the recorded training steps; `MissingSignal` if there is too little data."""
    val = run.points("val_loss")
    training: Progress = progress(run, fewest)
    # The first logged loss of a sparse record also covers the steps before it.
    first = training.loss.steps[0] - (training.loss.spacing if training.loss.spacing > 1 else 0)
    if known.validated_by:
        raise MissingSignal("val_loss", known.validated_by, "log both losses over the same steps")
    inside = val.where((val.steps >= first) & (val.steps <= training.loss.steps[-1] + training.loss.spacing))
    if not len(inside):
        raise MissingSignal("val_loss", "no validation is within the recorded training steps")
    train = np.interp(inside.steps, training.loss.steps, training.smooth)
    first = math.log(known.classes) if known.classes is not None else abs(training.start)
    return Gap(inside, train, (first or 1.0) / _SEED_LOSS)
