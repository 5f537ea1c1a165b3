"""The numbers of an incident, each measured once for the symptoms, the evidence and the limits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from steadyrun.postmortem.case import SPAN, WINDOW, Case
from steadyrun.questions.dynamics.d2_1_spikes import QUESTION as SPIKES
from steadyrun.questions.facts import known_rates
from steadyrun.signals import spikes
from steadyrun.signals.intent import regime
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.run_signals import Points
from steadyrun.text import shown

_LEAD = 11  # steps before the incident in which a jump of the learning rate counts
RECENT = 16  # steps back within which a batch may repeat, as in D2.3
_FEW = 5  # least number of values for the usual level of a series
_SETTLED = 5  # losses whose mean is the recovery loss


@dataclass(frozen=True)
class Rise:
    """The largest rise of the learning rate around the incident, and the declared rate there."""

    step: int
    before: float
    after: float
    share: float  # fraction of the run's peak
    declared: float | None


class Numbers:
    """The numbers of a case; None if not recorded."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._run = case.signals
        self._at = case.moment

    @cached_property
    def level(self) -> float | None:
        """The normal loss: the 50-step EMA just before the incident began."""
        loss = self._run.maybe("loss")
        return None if loss is None else spikes.ema_before(loss, self._at.began, SPAN)

    @cached_property
    def deviation(self) -> float | None:
        """The standard deviation of the 100 losses before the incident began."""
        loss = self._run.maybe("loss")
        early = np.empty(0) if loss is None else spikes.before(loss, self._at.began, WINDOW)
        return float(np.std(early)) if len(early) > 1 else None

    @property
    def spike_sigmas(self) -> float:
        """How many standard deviations above the mean D2.1 calls a spike."""
        return self._case.report.walk.limits.of(SPIKES)["sigmas"]

    @cached_property
    def spike_limit(self) -> float | None:
        """The loss above which D2.1 calls it a spike: 3 σ above the mean of the 100 losses before."""
        spike, loss, sigmas = self._at.spike, self._run.maybe("loss"), self.spike_sigmas
        if spike is not None:
            return spike.level + sigmas * spike.deviation
        early = np.empty(0) if loss is None else spikes.before(loss, self._at.began, WINDOW)
        return float(np.mean(early) + sigmas * np.std(early)) if len(early) > 1 else None

    @cached_property
    def peak(self) -> tuple[int, float] | None:
        """The highest finite loss during the incident, at most 50 steps after it began."""
        if self._at.spike is not None:
            return self._at.spike.peak_step, self._at.spike.value
        loss = self._run.maybe("loss")
        return None if loss is None else spikes.highest(spikes.between(loss, self._at.began, self._at.began + SPAN))

    @cached_property
    def highest_loss_before(self) -> float | None:
        loss = self._run.maybe("loss")
        highest = None if loss is None else spikes.highest(loss.where(loss.steps < self._at.began))
        return None if highest is None else highest[1]

    @cached_property
    def loss_there(self) -> float | None:
        """The loss at the incident's own step, finite or not."""
        return self.recorded("loss", self._at.step)

    @cached_property
    def recovery(self) -> tuple[int, float] | None:
        """The mean of five losses 50 steps after the peak, or at the end of a shorter recording; NaN if one is NaN."""
        if not self._run.has("loss") or (self.peak is None and not self._at.non_finite):
            return None
        series = self._run.raw("loss")
        start = self._at.peak if self._at.non_finite or self.peak is None else self.peak[0]
        later = (series.steps > start) & (series.steps <= start + SPAN)
        if not np.any(later):
            return None
        return int(series.steps[later][-1]), float(np.mean(series.values[later][-_SETTLED:]))

    @cached_property
    def gradient(self) -> tuple[int, float] | None:
        """The largest gradient norm from the start of the incident to its peak, or the first non-finite one."""
        if not self._run.has("grad_norm"):
            return None
        series = self._run.raw("grad_norm")
        there = (series.steps >= self._at.began) & (series.steps <= self._at.peak)
        if not np.any(there):
            return None
        values = series.values[there]
        index = int(np.argmax(np.where(np.isfinite(values), values, np.inf)))
        return int(series.steps[there][index]), float(values[index])

    @cached_property
    def gradients_before(self) -> Points | None:
        """The last 100 gradient norms before the incident began."""
        norms = self._run.maybe("grad_norm")
        if norms is None:
            return None
        early = norms.where(norms.steps < self._at.began)
        return Points(norms.name, early.steps[-WINDOW:], early.values[-WINDOW:]) if len(early) else None

    @cached_property
    def gradient_level(self) -> float | None:
        """The mean of the gradient norms before the incident."""
        return None if self.gradients_before is None else float(np.mean(self.gradients_before.values))

    @cached_property
    def gradient_times(self) -> float | None:
        """The gradient norm at the incident relative to its mean before."""
        if self.gradient is None or not self.gradient_level:
            return None
        return self.gradient[1] / self.gradient_level

    @cached_property
    def rate(self) -> float | None:
        """The learning rate as used at the incident."""
        names = sorted(self._run.matching("lr/*"))
        if not names:
            return None
        try:
            name = known_rates(self._run, self._case.report.walk.limits).rates.name
        except MissingSignal:
            name = names[0]
        return self.recorded(name, self._at.began)

    @cached_property
    def rise(self) -> Rise | None:
        """The largest rise of the learning rate, from ten steps before the incident to its peak."""
        try:
            schedule = known_rates(self._run, self._case.report.walk.limits)
        except MissingSignal:
            return None
        rise = spikes.largest_rise(spikes.between(schedule.rates, self._at.began - _LEAD, self._at.peak))
        peak = float(np.max(schedule.rates.values))
        if rise is None or peak <= 0:
            return None
        step, old, new = rise
        meant = None if schedule.plan is None else float(schedule.plan.rate(np.array([float(step)]))[0])
        return Rise(step, old, new, (new - old) / peak, meant)

    @cached_property
    def dtype(self) -> str:
        return regime(self._run)

    @cached_property
    def clip(self) -> float | None:
        """The clip threshold in force at the incident, or the declared one."""
        return self.recorded("clip_threshold", self._at.began) or self._run.declared("clip")

    def recorded(self, name: str, step: int) -> float | None:
        """The value of a series at exactly this step."""
        return spikes.value_at(self._run.raw(name), step) if self._run.has(name) else None

    @cached_property
    def repeats(self) -> tuple[int, ...] | None:
        """Steps around the incident with the same batch; None if it or its neighbours have no hash."""
        mine = self.recorded("batch_hash", self._at.step)
        if mine is None:
            return None
        series = self._run.raw("batch_hash")
        near = (series.steps >= self._at.step - RECENT) & (series.steps <= self._at.step + 1)
        steps, hashes = series.steps[near], series.values[near]
        known = steps != self._at.step
        return tuple(int(step) for step in steps[known & (hashes == mine)]) if np.any(known) else None

    def largest(self, pattern: str) -> tuple[str, float, float, bool] | None:
        """The most unusual member of a family such as `activation/*` at the incident.

        Its name, its value, its mean before, and whether it comes from the replay, which measures every step.
        """
        for run, replayed in ((self._case.replayed, True), (self._run, False)):
            family = [] if run is None else [(name, run.raw(name)) for name in run.matching(pattern)]
            for step in dict.fromkeys((self._at.began, self._at.step, self._at.peak)):
                pairs = [
                    (name, pair) for name, series in family if (pair := spikes.times_before(series, step, WINDOW, _FEW))
                ]
                if pairs:
                    name, (now, usual) = max(pairs, key=lambda member: _times(*member[1]))
                    return name.partition("/")[2], now, usual, replayed
        return None


def _times(now: float, usual: float) -> float:
    return now / usual if np.isfinite(now) else float("inf")


def against(now: float, usual: float) -> str:
    """A value with its normal level, in words."""
    if not np.isfinite(now) or not usual:
        return f"{shown(now)}, normally {shown(usual)}"
    return f"{shown(now)}, normally {shown(usual)} ({shown(now / usual)} times as large)"
