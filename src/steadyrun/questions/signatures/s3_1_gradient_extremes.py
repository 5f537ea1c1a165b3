"""S3.1: do gradients explode in the first steps, or vanish?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    norms, ends = run.points("grad_norm"), limit.count("ends")
    early = norms.values[norms.steps <= norms.steps[0] + limit["within"]]
    first, highest = float(np.median(norms.values[:ends])), float(np.max(early))
    last = float(np.median(norms.values[-ends:]))
    measured = {"highest": highest, "left": last / first if first else 0.0}
    step = norms.step_at(int(np.argmax(early)))
    facts = f"Gradient norm is at most {shown(highest)} in the first {limit['within']:g} steps"
    # Only a cross-entropy has gradients of a known size; other losses are compared with their first norm.
    began = float(norms.values[0])
    bound, words = (
        (limit["explodes"], "")
        if known_facts(run, limit).classes is not None
        else (limit["explodes"] * began, f" times the first norm, {shown(began)}")
    )
    if highest > bound > 0:
        message = f"Gradient norm reaches {shown(highest)} at step {step} (limit {limit['explodes']:g}{words})."
        return Finding("exploding", message, measured, step)
    if len(norms) > 2 * ends and first > 0 and measured["left"] < limit["vanishes"]:
        message = f"Gradient norm fell from {shown(first)} to {shown(last)}, a ratio of {shown(measured['left'])} "
        message += f"(expected at least {limit['vanishes']:g})."
        return Finding("vanishing", message, measured, norms.step_at(len(norms) - 1))
    return Finding("pass", f"{facts} and {shown(last)} at the end.", measured)


QUESTION = Question(
    code="S3.1",
    name="exploding or vanishing gradients",
    asks="Does the gradient norm exceed 1000 in the first steps, or vanish by the end?",
    why="Initial weights that are too large multiply gradients from layer to layer until they overflow; saturated "
    "units or underflow stop learning. C5.1, C3.1 and D1 find out which, and whether it is a fault.",
    needs=("grad_norm",),
    panel=3,
    thresholds=(
        Threshold(
            name="explodes",
            value=1000,
            unit="gradient norm, or times the first norm",
            meaning="how large the norm may be; relative to the first norm if the loss is not a cross-entropy",
            seed="1e3 and more within a few steps",
            decision="a rule of thumb for a cross-entropy, since its healthy runs start below 13; a healthy "
            "regression on raw numbers has 5,600, so other losses are compared with their first norm",
            of="highest",
        ),
        Threshold(
            name="within",
            value=20,
            unit="steps",
            meaning="how many of the first steps count",
            seed="a few steps",
            decision="the window of C3.1",
        ),
        Threshold(
            name="vanishes",
            value=1e-6,
            unit="of the first norms",
            meaning="a smaller norm at the end has vanished",
            seed="",
            decision="a classifier that has learned everything keeps 3e-4",
            of="-left",
        ),
        Threshold(
            name="ends",
            value=20,
            unit="norms",
            meaning="how many at either end are summarised by their median",
            seed="",
            decision="one batch does not move their median",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="gradients neither explode nor vanish"),
        Outcome(
            name="exploding",
            answer=NOTE,
            meaning="gradients explode in the first steps",
            fix="Clip gradients, warm up the learning rate, and check the initial weights.",
        ),
        Outcome(
            name="vanishing",
            answer=NOTE,
            meaning="gradients have vanished",
            fix="No action is needed if the model has learned its task; otherwise look for saturated or dead units.",
        ),
    ),
    find=find,
)
