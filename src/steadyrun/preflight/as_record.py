"""Facts known before training in the form of a recorded run, so that questions of the trees can read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from steadyrun.records import Event, Series
from steadyrun.signals.run_signals import Signals


@dataclass(frozen=True)
class GivenRecord:
    """A run that consists of these numbers only."""

    config: Mapping[str, Any]
    numbers: Mapping[str, tuple[Any, Any]]  # steps and values
    facts: Mapping[str, Any] = field(default_factory=dict)
    state: str = "finished"

    @property
    def manifest(self) -> dict[str, Any]:
        return {"config": dict(self.config), **self.facts}

    def names(self) -> list[str]:
        return sorted(self.numbers)

    def series(self, name: str) -> Series:
        steps, values = self.numbers[name]
        return Series(name, np.asarray(steps, np.int64), np.asarray(values, float), np.zeros(len(values)))

    def events(self, _kind: str | None = None) -> list[Event]:
        return []

    def signals(self) -> Signals:
        return Signals(self)
