"""S2.2: does the learning rate reach its minimum long before the run ends?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.facts import known_rates
from steadyrun.questions.form import NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.learning_rates import SAME, RecordedRates
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    recorded = known_rates(run, limit)
    rates = recorded.rates
    if len(rates) < limit["rates"]:
        words = f"recorded learning rates: {len(rates)}, needed: {limit['rates']:g}"
        raise MissingSignal("lr/*", words, "let it run on")
    if recorded.constant:
        raise NotApplicable(f"the learning rate is constant ({shown(rates.values[0])})")
    peak, lowest = int(np.argmax(rates.values)), float(rates.values[-1])
    falls = np.diff(rates.values[peak:])
    if lowest > limit["floor"] * float(rates.values[peak]) or int(np.sum(falls < 0)) < limit["changes"]:
        raise NotApplicable("the learning rate has no smooth decay that ended")
    there = _from(recorded, lowest)
    steps = float(rates.steps[-1] - rates.steps[there])
    share = steps / (float(rates.steps[-1] - rates.steps[0]) or 1.0)
    measured = {"wasted": share, "steps": steps}
    step = rates.step_at(there)
    facts = f"Learning rate is at its minimum, {shown(lowest)}, since step {step}: {percent(share)} of the run"
    if share <= limit["wasted"]:
        return Finding("pass", f"{facts} (limit {percent(limit['wasted'])}).", measured, step)
    if (planned := _planned(recorded)) is not None and planned >= (1 - limit["wasted"]) * share:
        return Finding("pass", f"{facts}, as declared.", measured, step)
    message = f"{facts} (limit {percent(limit['wasted'])})."
    return Finding("early", message, measured, step)


def _from(recorded: RecordedRates, lowest: float) -> int:
    """The index after which the learning rate stays at its minimum."""
    above = np.flatnonzero(recorded.rates.values > lowest + SAME * recorded.peak)
    return int(above[-1]) + 1 if len(above) else 0


def _planned(recorded: RecordedRates) -> float | None:
    """The fraction of the recorded steps that the declared schedule spends at its minimum."""
    if recorded.plan is None:
        return None
    meant = recorded.plan.rate(recorded.rates.steps)
    return float(
        np.mean(
            (meant <= recorded.plan.floor + SAME * recorded.plan.peak) & (recorded.rates.steps >= recorded.plan.warmup)
        )
    )


QUESTION = Question(
    code="S2.2",
    name="the decay lasts as long as the run",
    asks="Does the learning rate reach its minimum long before training ends?",
    why="A decay that was given too few steps ends early, and the rest of the run trains at the minimum learning "
    "rate. If the length is declared, C2.1 reports the fault.",
    needs=("lr/*",),
    panel=2,
    thresholds=(
        Threshold(
            name="wasted",
            value=0.1,
            unit="fraction of the run",
            meaning="how many steps may be at the minimum after a decay",
            seed="the last N steps run at lr_min",
            decision="a cosine spends 2% of its length within a thousandth of its end",
            of="wasted",
        ),
        Threshold(
            name="floor",
            value=0.5,
            unit="of the peak",
            meaning="a learning rate below this has decayed",
            seed="",
            decision="a run that ends above it was stopped before the decay ended",
        ),
        Threshold(
            name="rates",
            value=5,
            unit="learning rates",
            meaning="with fewer the question is not answered",
            seed="",
            decision="two or three points fit any curve",
        ),
        Threshold(
            name="changes",
            value=10,
            unit="changes",
            meaning="a learning rate that falls fewer times is a step schedule",
            seed="",
            decision="a step schedule stays at its last level",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the decay lasts as long as the run, or as declared"),
        Outcome(
            name="early",
            answer=NOTE,
            meaning="the learning rate reaches its minimum long before the run ends",
            fix="Give the scheduler the number of optimizer steps of the whole run, or stop when the decay ends.",
        ),
    ),
    find=find,
)
