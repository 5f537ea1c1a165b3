"""S2.2: is the decay over before the run is?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.facts import known_rates
from steadyrun.questions.form import NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.learning_rates import SAME, RecordedRates
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    recorded = known_rates(run, limit)
    rates = recorded.rates
    if len(rates) < limit["rates"]:
        raise MissingSignal("lr/*", f"only {len(rates)} learning rates are recorded yet", "let it run on")
    if recorded.constant:
        raise NotApplicable(f"the learning rate is constant ({shown(rates.values[0])})")
    peak, lowest = int(np.argmax(rates.values)), float(rates.values[-1])
    falls = np.diff(rates.values[peak:])
    if lowest > limit["floor"] * float(rates.values[peak]) or int(np.sum(falls < 0)) < limit["changes"]:
        raise NotApplicable("the learning rate has no smooth decay that came to an end")
    there = _from(recorded, lowest)
    steps = float(rates.steps[-1] - rates.steps[there])
    share = steps / (float(rates.steps[-1] - rates.steps[0]) or 1.0)
    measured = {"wasted": share, "steps": steps}
    step = rates.step_at(there)
    facts = f"the learning rate is at its lowest, {shown(lowest)}, from step {step} on: for the last {steps:.0f} steps"
    if share <= limit["wasted"]:
        return Finding("pass", f"{facts}, {share:.1%} of the run (limit {limit['wasted']:.0%}).", measured, step)
    if (planned := _planned(recorded)) is not None and planned >= (1 - limit["wasted"]) * share:
        return Finding("pass", f"{facts}, {share:.1%} of the run, as declared.", measured, step)
    message = f"{facts}, {share:.0%} of the run (limit {limit['wasted']:.0%}): they hardly learn."
    return Finding("early", message, measured, step)


def _from(recorded: RecordedRates, lowest: float) -> int:
    """The place from which on the rate stays at the lowest."""
    above = np.flatnonzero(recorded.rates.values > lowest + SAME * recorded.peak)
    return int(above[-1]) + 1 if len(above) else 0


def _planned(recorded: RecordedRates) -> float | None:
    """The share of the recorded steps that the declared plan spends at its floor."""
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
    name="minimum rate too early",
    asks="Does the learning rate reach its minimum before training ends, so that the last steps are wasted?",
    why="A decay that was given too few steps ends early, and the rest of the run trains at the lowest rate. C2.1 "
    "holds the fault where the length is declared.",
    needs=("lr/*",),
    panel=2,
    thresholds=(
        Threshold(
            name="wasted",
            value=0.1,
            unit="share of the run",
            meaning="steps at the lowest rate after a decay",
            seed="the last N steps run at lr_min",
            decision="a cosine spends 2% of its length within a thousandth of its end",
            of="wasted",
        ),
        Threshold(
            name="floor",
            value=0.5,
            unit="share of the peak",
            meaning="a rate that has decayed",
            seed="",
            decision="a run that ends above it was stopped on the way",
        ),
        Threshold(
            name="rates",
            value=5,
            unit="learning rates",
            meaning="fewer show no curve",
            seed="",
            decision="two or three points fit any curve",
        ),
        Threshold(
            name="changes",
            value=10,
            unit="changes",
            meaning="a rate that falls in fewer is a step schedule",
            seed="",
            decision="such a rate stays on its last stair",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the decay takes as long as the run, or as declared"),
        Outcome(
            name="early",
            answer=NOTE,
            meaning="the decay is over long before the run",
            fix="Give the scheduler the number of optimizer steps of the whole run, or stop where it ends.",
        ),
    ),
    find=find,
)
