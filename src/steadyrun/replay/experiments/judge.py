"""Decide whether an experiment removed an incident: ask the question that raised it about the changed run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from steadyrun.questions.dynamics.run_spikes import BACK, SETTLED, SIGMAS, WINDOW
from steadyrun.questions.form import FAULT
from steadyrun.records import Event, Series
from steadyrun.replay.incident import Incident
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.signals.spikes import Spike, spikes
from steadyrun.store.reader import RunReader
from steadyrun.trees import questions_of
from steadyrun.trees.walker import walk

# A run whose steps after some point come from an experiment.


class Spliced:
    """A run for signals: the recorded series before `start`, those of an experiment from there."""

    def __init__(self, run: RunReader, experiment: Mapping[str, Series], start: int) -> None:
        self._run, self._experiment, self._start = run, experiment, start
        self.state = "stopped"

    @property
    def manifest(self) -> dict[str, Any]:
        return self._run.manifest

    def names(self) -> list[str]:
        return self._run.names()

    def series(self, name: str) -> Series:
        before = self._run.series(name)
        keep = before.steps < self._start
        parts = [Series(name, before.steps[keep], before.values[keep], before.times[keep])]
        if (after := self._experiment.get(name)) is not None:
            new = after.steps >= self._start
            parts.append(Series(name, after.steps[new], after.values[new], after.times[new]))
        return Series(
            name,
            np.concatenate([part.steps for part in parts]),
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.times for part in parts]),
        )

    def events(self, kind: str | None = None) -> list[Event]:
        return [event for event in self._run.events(kind) if event.step is None or event.step <= self._start]


# Faults of a single step; all others are about the whole run.
OF_A_MOMENT = frozenset({"C3.2", "D1.3", "D2.3", "D2.4", "D3.1", "D3.2", "D3.3", "S1.2", "S3.1"})
_LATE = 10  # steps after the incident within which the bad loss may begin


@dataclass(frozen=True)
class Trial:
    """One run of the window with a change."""

    losses: dict[int, float]
    parameters_finite: bool
    raised: str
    series: dict[str, Series]
    acted: bool = True  # whether the change reached the bad step

    @property
    def peak_loss(self) -> float:
        return _peak(list(self.losses.values()))

    @property
    def peak_grad_norm(self) -> float:
        return _peak(self.series["grad_norm"].values.tolist()) if "grad_norm" in self.series else math.nan


class IncidentJudge:
    """Recognises the incident in a changed run."""

    def __init__(self, incident: Incident, first_bad: int | None, raised: str) -> None:
        self._incident = incident
        self.code = str(incident.content.get("found", {}).get("code", ""))
        self._non_finite, self._raised = first_bad is not None and not raised, raised
        self.spike = None if self._non_finite or self._raised else self._find_spike()

    @property
    def cannot_tell(self) -> str:
        """Why no experiment can decide; empty if experiments can."""
        if self._non_finite or self._raised or self.spike is not None or self.code in OF_A_MOMENT:
            return ""
        if self.code:
            return f"{self.code} is a fault of the whole run, not of one step: see `steadyrun check` for its cause"
        return "nothing unusual happens at this step: the loss does not jump, and everything is finite"

    @property
    def moment(self) -> int:
        """The first step whose loss is bad."""
        return self._incident.step if self.spike is None else self.spike.start_step

    def gone(self, trial: Trial, start: int) -> bool | None:
        """Whether the incident is gone from the trial; None if the trial raised another error."""
        if not trial.parameters_finite or not all(map(math.isfinite, trial.losses.values())):
            return False
        if trial.raised:
            return False if self.raises(trial.raised) else None
        if self._non_finite or self._raised:
            return True
        if self.spike is not None:
            limit = self.spike.level + SIGMAS * self.spike.deviation
            return max(trial.losses.values()) <= max(limit, self._quiet)
        return not self._still_found(trial, start)

    def raises(self, raised: str) -> bool | None:
        """Whether an exception is that of the incident; None if it is another, which decides nothing."""
        return True if self._raised and raised.partition(":")[0] == self._raised.partition(":")[0] else None

    def shows(self, loss: float) -> bool:
        """Whether a single loss counts as the incident, by the incident's rule."""
        if not math.isfinite(loss):
            return True
        return self.spike is not None and loss > max(self.spike.level + SIGMAS * self.spike.deviation, self._quiet)

    @property
    def _quiet(self) -> float:
        """The largest loss before the incident: a loss up to this is not unusual."""
        assert self.spike is not None
        before = [loss for step, loss in self._incident.recorded("loss").items() if step < self.spike.start_step]
        return max(before[-WINDOW:], default=-math.inf)

    def _find_spike(self) -> Spike | None:
        series = self._incident.series("loss")
        keep = np.isfinite(series.values)
        points = Points("loss", series.steps[keep].astype(float), series.values[keep])
        near = [
            spike
            for spike in spikes(points, WINDOW, SIGMAS, BACK, SETTLED)
            if spike.peak_step - self._incident.step >= 0 and spike.start_step - self._incident.step <= _LATE
        ]
        return max(near, key=lambda spike: spike.sigmas, default=None)

    def _still_found(self, trial: Trial, start: int) -> bool:
        signals = Signals(Spliced(self._incident.view, trial.series, start))
        walked = walk(questions_of(signals), signals, {}, go_on=True)
        return any(asked.question.code == self.code and asked.answer.kind == FAULT for asked in walked.path)


def _peak(values: list[float]) -> float:
    if not values:
        return math.nan
    return next((value for value in values if not math.isfinite(value)), max(values))
