"""A run whose steps from some point on are those of an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from steadyrun.records import Event, Series
from steadyrun.store.reader import RunView


class Spliced:
    """What signals need of a run: the run until `start`, the series of an experiment from there on."""

    def __init__(self, run: RunView, experiment: Mapping[str, Series], start: int) -> None:
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
