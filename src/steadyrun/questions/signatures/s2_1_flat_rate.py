"""S2.1: is the learning rate constant although a schedule is set?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.facts import known_rates
from steadyrun.questions.form import NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.curves import thinned
from steadyrun.signals.learning_rates import RecordedRates
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent, shown

_POINTS = 1000  # of a curve: more do not change how far it moves


def find(run: Signals, limit: Limits) -> Finding:
    recorded = known_rates(run, limit)
    rates = recorded.rates
    if len(rates) < limit["rates"]:
        words = f"recorded learning rates: {len(rates)}, needed: {limit['rates']:g}"
        raise MissingSignal("lr/*", words, "let it run on")
    low, high = float(np.min(rates.values)), float(np.max(rates.values))
    step = rates.step_at(0)
    if not recorded.constant:
        return Finding("pass", f"Learning rate moves between {shown(low)} and {shown(high)}.", {"flat": 0.0}, step)
    moves = _meant_to_move(recorded, limit["rates"])
    if moves is None:
        raise NotApplicable("no schedule is declared or watched, so a constant learning rate is intended")
    measured = {"flat": 1.0, "meant": moves}
    facts = f"Learning rate is {shown(high)} from step {step} to {rates.step_at(len(rates) - 1)}"
    if moves <= limit["moves"]:
        return Finding("pass", f"{facts}, as the schedule intends.", measured, step)
    message = f"{facts}, but its schedule moves by {percent(moves)} of the peak (limit {percent(limit['moves'])})."
    return Finding("flat", message, measured, step)


def _meant_to_move(recorded: RecordedRates, fewest: float) -> float | None:
    """The range of the declared schedule, or the scheduler's dry run, over the recorded steps, relative to its peak."""
    indices = thinned(len(recorded.rates), _POINTS)
    steps = recorded.rates.steps[indices]
    if recorded.plan is not None:
        return float(np.ptp(recorded.plan.rate(steps))) / recorded.plan.peak
    warmup = recorded.run.declared("warmup_steps") or 0
    if warmup >= fewest and recorded.rates.steps[-1] > warmup:
        return 1.0
    if recorded.dry is None:
        return None
    counts = recorded.counts
    if counts is not None and (np.ptp(counts) > 0 or recorded.run.running):  # it may be stepped once per epoch
        steps = counts[indices]
    curve = recorded.dry(steps - steps[0])
    return float(np.ptp(curve)) / (float(np.max(np.abs(curve))) or 1.0)


QUESTION = Question(
    code="S2.1",
    name="the learning rate moves",
    asks="Is the learning rate constant from step 0 although a schedule is declared or watched?",
    why="A scheduler that is connected wrongly causes no error and no odd loss, only a constant learning rate instead "
    "of a ramp and a decay. C2.1 finds the reason and reports the fault.",
    needs=("lr/*", "schedule", "lr_max", "warmup_steps", "total_steps"),
    panel=2,
    thresholds=(
        Threshold(
            name="moves",
            value=0.05,
            unit="of the peak",
            meaning="a schedule that moves by less over the recorded steps may look constant",
            seed="a flat line where the cosine should be",
            decision="the tolerance of C2.1",
            of="meant",
        ),
        Threshold(
            name="rates",
            value=5,
            unit="learning rates",
            meaning="with fewer the question is not answered",
            seed="",
            decision="two or three points fit any curve",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the learning rate moves, or is meant to be constant"),
        Outcome(
            name="flat",
            answer=NOTE,
            meaning="the learning rate is constant although a schedule is set",
            fix="Call scheduler.step() after every optimizer.step(), or remove the schedule.",
        ),
    ),
    find=find,
)
