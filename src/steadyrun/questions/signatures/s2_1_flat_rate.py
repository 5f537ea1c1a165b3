"""S2.1: is the learning rate a flat line where it should move?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.facts import known_rates
from steadyrun.questions.form import NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.curves import thinned
from steadyrun.signals.learning_rates import RecordedRates
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown

_POINTS = 1000  # of a curve: more do not change how far it moves


def find(run: Signals, limit: Limits) -> Finding:
    recorded = known_rates(run, limit)
    rates = recorded.rates
    if len(rates) < limit["rates"]:
        raise MissingSignal("lr/*", f"only {len(rates)} learning rates are recorded yet", "let it run on")
    low, high = float(np.min(rates.values)), float(np.max(rates.values))
    step = rates.step_at(0)
    if not recorded.constant:
        return Finding("pass", f"the learning rate moves between {shown(low)} and {shown(high)}.", {"flat": 0.0}, step)
    moves = _meant_to_move(recorded, limit["rates"])
    if moves is None:
        raise NotApplicable("no schedule is declared or watched: a constant learning rate is what was asked for")
    measured = {"flat": 1.0, "meant": moves}
    facts = f"the learning rate is {shown(high)} from step {step} to {rates.step_at(len(rates) - 1)}"
    if moves <= limit["moves"]:
        return Finding("pass", f"{facts}, as it should be until then.", measured, step)
    message = f"{facts}, where it should have moved by {moves:.0%} of its peak (limit {limit['moves']:.0%}): see C2.1."
    return Finding("flat", message, measured, step)


def _meant_to_move(recorded: RecordedRates, fewest: float) -> float | None:
    """How far the declared curve, or the scheduler's dry run, moves over the recorded steps, as a share of the peak."""
    places = thinned(len(recorded.rates), _POINTS)
    steps = recorded.rates.steps[places]
    if recorded.plan is not None:
        return float(np.ptp(recorded.plan.rate(steps))) / recorded.plan.peak
    warmup = recorded.run.declared("warmup_steps") or 0
    if warmup >= fewest and recorded.rates.steps[-1] > warmup:
        return 1.0
    if recorded.dry is None:
        return None
    counts = recorded.counts
    if counts is not None and (np.ptp(counts) > 0 or recorded.run.running):  # it may be stepped once per epoch
        steps = counts[places]
    curve = recorded.dry(steps - steps[0])
    return float(np.ptp(curve)) / (float(np.max(np.abs(curve))) or 1.0)


QUESTION = Question(
    code="S2.1",
    name="flat learning rate",
    asks="Is the learning rate flat from step 0 although a schedule is declared or watched?",
    why="A scheduler that is wired wrongly leaves no error and no odd loss behind, only a flat line where a ramp and a "
    "decay should be. C2.1 finds the reason, and holds the fault.",
    needs=("lr/*", "schedule", "lr_max", "warmup_steps", "total_steps"),
    panel=2,
    thresholds=(
        Threshold(
            name="moves",
            value=0.05,
            unit="share of the peak",
            meaning="how far the intended curve moves over the recorded steps",
            seed="a flat line where the cosine should be",
            decision="the limit of C2.1 for a rate that agrees",
            of="meant",
        ),
        Threshold(
            name="rates",
            value=5,
            unit="learning rates",
            meaning="fewer show no curve",
            seed="",
            decision="two or three points fit any curve",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the rate moves, or is meant to stay"),
        Outcome(name="flat", answer=NOTE, meaning="a flat line where a schedule should be"),
    ),
    find=find,
)
