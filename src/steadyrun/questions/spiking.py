"""The loss spikes of a run, found once for the questions of section D2."""

from __future__ import annotations

from steadyrun.signals.run import MissingSignal, Signals
from steadyrun.signals.spikes import Spike, spikes

WINDOW, SIGMAS, BACK, WITHIN = 100, 3.0, 0.5, 50


def find_spikes(run: Signals, window: int = WINDOW, sigmas: float = SIGMAS, back: float = BACK) -> list[Spike]:
    """All spikes by the literal rule; an error where the record is too short for its window."""
    loss = run.points("loss")
    if len(loss) <= window:
        how = "let it run on" if run.running else "train for longer"
        raise MissingSignal("loss", f"{len(loss)} losses are recorded, the rule needs more than {window}", how)
    return spikes(loss, window, sigmas, back)


def stays(run: Signals, spike: Spike, within: float = WITHIN) -> bool:
    """Whether the loss was not back within so many steps (points, where sparse)."""
    length = spike.length if spike.length is not None else len(run.points("loss")) - spike.start
    return length > within
