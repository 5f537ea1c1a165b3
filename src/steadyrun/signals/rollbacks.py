"""Runs that went back to a checkpoint: the path of training, without the abandoned steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from steadyrun.records import Event
from steadyrun.signals.curves import Floats
from steadyrun.signals.run_signals import Points, Signals


class Path:
    """The path of training through rollbacks: recorded steps continue, schedule and optimizer go back.

    A position is a step as schedule and optimizer count it. Without rollbacks it equals the step.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self._back: list[tuple[int, int]] = []  # the step after a rollback, and the one that it went back to
        for event in events:
            if event.kind == "resume" and event.step is not None:  # later steps of the earlier attempt are replaced
                self._back = [back for back in self._back if back[0] <= event.step]
            elif event.kind == "rollback" and event.step is not None and _is_step(event.fields.get("to_step")):
                self._back.append((event.step, min(event.step, event.fields["to_step"])))
        self._starts: list[tuple[float, float]] = []  # from which step on, and how far positions lie behind
        for seam, to in self._back:
            self._starts.append((seam, seam - to + float(self._behind(np.array([float(to)]))[0])))

    def positions(self, steps: Floats) -> Floats:
        return steps - self._behind(steps)

    def along(self, points: Points) -> Points:
        """The points on the path by position, without those between a checkpoint and the rollback."""
        if not self._back:
            return points
        kept = np.ones(len(points), bool)
        for seam, to in self._back:
            kept &= (points.steps < to) | (points.steps >= seam)
        left = points.where(kept)
        return Points(left.name, self.positions(left.steps), left.values)

    def crosses(self, before: float, after: float) -> bool:
        """Whether training went back between two recorded steps."""
        return any(before < seam <= after for seam, _ in self._back)

    def _behind(self, steps: Floats) -> Floats:
        distances = np.zeros(len(steps))
        for start, behind in self._starts:
            distances[steps >= start] = behind
        return distances


def path_of(run: Signals) -> Path:
    """The path of a run."""
    if "path" not in run.memo:
        events = [*run.events("resume"), *run.events("rollback")]
        run.memo["path"] = Path(sorted(events, key=lambda event: event.time))
    path: Path = run.memo["path"]
    return path


def _is_step(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
