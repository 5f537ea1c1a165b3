"""What has been so from the first sample to the last: the proof that several signatures rest on."""

from __future__ import annotations

from typing import Any

from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.progress import from_scratch
from steadyrun.signals.run_signals import Points, Signals

_FIRST = 2  # steps: a sample later than this does not show the start


def from_the_start(points: Points, samples: float, steps: float) -> bool:
    """Whether a sampled series shows the start, and enough of what came after it to speak of a state."""
    return len(points) >= samples and points.steps[0] <= _FIRST and points.steps[-1] - points.steps[0] >= steps


def none_there(run: Signals, probe: str) -> None:
    """Raise where a probe looked at the forward pass and found nothing of its kind in this model."""
    for event in run.events("not-recorded"):
        if event.fields.get("probe") == probe:
            raise NotApplicable(f"{probe}: {event.fields.get('why') or 'none were found in this model'}")


def from_random_weights(run: Signals, part: str) -> bool:
    """Whether a part of the model starts untrained and all of it is trained.

    Where no parameter bears its name (an activation's module), the whole model counts.
    """
    weights = run.listed("initial_weights")
    mine = [entry for entry in weights if _belongs(entry, part)] or weights
    return from_scratch(run) and bool(mine) and all(entry.get("trainable") is True for entry in mine)


def _belongs(entry: dict[str, Any], part: str) -> bool:
    return str(entry.get("name")).startswith(f"{part}.")
