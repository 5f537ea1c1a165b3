"""The loss spikes of a run, found once for the questions of section D2."""

from __future__ import annotations

from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.run import Signals
from steadyrun.signals.spikes import Spike, spikes

WINDOW, SIGMAS, BACK, WITHIN = 100, 3.0, 0.5, 50
_SHORTEST = 20  # points: fewer have no deviation to speak of
_SOON = 10  # points: fewer tell no recovery


def window_of(run: Signals, window: int = WINDOW) -> int:
    """The window before a spike, in points: so many steps, and never too few to have a deviation."""
    return run.stretch(run.points("loss"), window, _SHORTEST)


def find_spikes(run: Signals, window: int = WINDOW, sigmas: float = SIGMAS, back: float = BACK) -> list[Spike]:
    """All spikes by the literal rule; an error where the record is too short for its window."""
    loss = run.points("loss")
    window = window_of(run, window)
    if len(loss) <= window:
        how = "let it run on" if run.running else "train for longer"
        raise MissingSignal("loss", f"{len(loss)} losses are recorded, the rule needs more than {window}", how)
    key = ("spikes", window, sigmas, back)
    if key not in run.memo:
        run.memo[key] = spikes(loss, window, sigmas, back)
    found: list[Spike] = run.memo[key]
    return found


def stays(run: Signals, spike: Spike, within: float = WITHIN) -> bool:
    """Whether the loss was not back within so many steps."""
    loss = run.points("loss")
    length = spike.length if spike.length is not None else len(loss) - spike.start
    return length > run.stretch(loss, within, _SOON)
