"""Whether a run learned although a size is unusual: shared by the questions about sizes."""

from __future__ import annotations

import math

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import Limits, Threshold
from steadyrun.questions.vital_signs import v1_2_guess
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.progress import Levels, levels
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent, shown

_ROUNDING = 1e-6
_HARDLY = 0.01  # of the first loss: a smaller change is not a fall

LEARNED = Threshold(
    name="learned",
    value=0.5,
    unit="fraction of the first loss",
    meaning="after a larger fall, an unusual size is a choice that works",
    seed="",
    decision="a run that learns is not broken",
)
STEPS = Threshold(
    name="steps",
    value=200,
    unit="steps",
    meaning="a shorter run is not judged",
    seed="",
    decision="the same as in C4.1",
)


def judged(run: Signals, limit: Limits) -> Levels:
    """The levels of a loss that had time to fall; a loss that moves freely is not judged."""
    if free := known_facts(run, limit).moves_freely:
        raise NotApplicable(f"this loss may move freely: {free}")
    loss = levels(run, "loss", limit["losses"])
    if loss.steps < limit["steps"]:
        raise NotApplicable(f"the run has {loss.steps:.0f} steps; {limit['steps']:g} are needed")
    return loss


def fallen(run: Signals, limit: Limits) -> float:
    """The fraction by which the loss fell.

    If a loss starts above that of a guess, the guess counts as the start: reaching it is not learning.
    """
    loss, classes = judged(run, limit), known_facts(run, limit).classes
    start = min(loss.start, math.log(classes)) if classes and not _summed(run) else loss.start
    gone = (start - loss.end) / abs(start) if start else 0.0
    if classes or not run.matching("fit/*"):
        return gone
    guess = limit.ask(v1_2_guess.QUESTION, run).measured
    return min(gone, 1 - guess["ratio"]) if "ratio" in guess else gone


def _summed(run: Signals) -> bool:
    seen = run.inferred.get("objective")
    return run.config.get("reduction") == "sum" or (isinstance(seen, dict) and seen.get("reduction") == "sum")


def fall_in_words(run: Signals, limit: Limits) -> str:
    loss, gone = levels(run, "loss", limit["losses"]), fallen(run, limit)
    if gone < 0:
        return f"the loss ends at {shown(loss.end)}, above its start or a guess"
    if gone < loss.fallen - _ROUNDING:
        return f"the loss ends at {shown(loss.end)}, {percent(gone)} below that of a guess"
    return f"{change_in_words(gone)}, to {shown(loss.end)}"


def change_in_words(fallen: float, least: float = 0.0) -> str:
    """In words: by how much the loss fell; a tiny change is not a fall, and one below `least` is too small."""
    if fallen < 0:
        return f"the loss rose by {percent(-fallen)}"
    if fallen < _HARDLY:
        return f"the loss changed by only {percent(fallen)}"
    return f"the loss fell by {'only ' if fallen < least else ''}{percent(fallen)}"
