"""Losses as they arrive: one that is not finite, and one that jumped by the rule of D2.1."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping

import numpy as np

from steadyrun.questions.dynamics.run_spikes import BACK, SIGMAS, WINDOW
from steadyrun.signals.run_signals import Points
from steadyrun.signals.spikes import spikes

_TOGETHER = 25  # steps between two looks for spikes: the ring reaches back much further

Spotted = tuple[str, int, str, float]
"""Kind, step, why, severity."""


class Triggers:
    """Shown the numbers of each step once they are known."""

    def __init__(self) -> None:
        self._losses: deque[tuple[int, float]] = deque(maxlen=WINDOW + _TOGETHER)
        self._since = 0
        self._last = self._reported_until = -1
        self._non_finite = False

    def saw(self, step: int, values: Mapping[str, float | None]) -> Iterator[Spotted]:
        """What stands out; a step that was shown before is passed over."""
        loss = values.get("loss")
        if loss is None or step <= self._last:
            return
        self._last = step
        if not math.isfinite(loss):
            if not self._non_finite:
                yield "non-finite", step, f"the loss of step {step} is {loss}", math.inf
            self._non_finite = True
            return
        self._non_finite = False
        self._losses.append((step, loss))
        self._since += 1
        if self._since >= _TOGETHER:
            self._since = 0
            yield from self.spikes()

    def spikes(self) -> Iterator[Spotted]:
        """The spikes among the last losses that were not told before."""
        if len(self._losses) <= WINDOW:
            return
        steps = np.array([step for step, _ in self._losses])
        values = np.array([loss for _, loss in self._losses])
        for spike in spikes(Points("loss", steps, values), WINDOW, SIGMAS, BACK):
            if spike.start_step > self._reported_until:
                self._reported_until = spike.peak_step
                why = f"the loss jumped to {spike.value:.4g}, {spike.sigmas:.1f} deviations above {spike.level:.4g}"
                yield "spike", spike.start_step, why, spike.sigmas
