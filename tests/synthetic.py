"""A run made of given numbers, for tests of signals and questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from steadyrun.records import Event, Series


class Synthetic:
    """Series as lists (at steps 0, 1, 2, …) or as (steps, values); the manifest's parts as keyword arguments."""

    by_rank: Any = None  # of several processes: their files

    def __init__(
        self,
        config: dict[str, Any] | None = None,
        manifest: dict[str, Any] | None = None,
        events: Sequence[Event] = (),
        state: str = "finished",
        **series: Any,
    ) -> None:
        self.manifest = {"schema": 1, "config": config or {}, **(manifest or {})}
        self.state = state
        self._events = list(events)
        self._series = {name: _series(name, given) for name, given in series.items()}

    def names(self) -> list[str]:
        return sorted(self._series)

    def series(self, name: str) -> Series:
        return self._series[name]

    def events(self, kind: str | None = None) -> list[Event]:
        return [event for event in self._events if kind in (None, event.kind)]


def _series(name: str, given: Any) -> Series:
    steps, values = given if isinstance(given, tuple) else (np.arange(len(given)), given)
    return Series(name, np.asarray(steps, np.int64), np.asarray(values, float), np.zeros(len(values)))
