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
    facts = f"gradient norm {shown(highest)} at most in the first {limit['within']:g} steps"
    # Only a cross-entropy has gradients of a known size; other losses are compared with where they began.
    began = float(norms.values[0])
    bound, words = (
        (limit["explodes"], "")
        if known_facts(run, limit).classes is not None
        else (limit["explodes"] * began, f" times the first one, {shown(began)}")
    )
    if highest > bound > 0:
        return Finding("exploding", f"{facts}, above {limit['explodes']:g}{words}.", measured, step)
    facts = f"{facts}, {shown(last)} at the end"
    if len(norms) > 2 * ends and first > 0 and measured["left"] < limit["vanishes"]:
        message = f"{facts}: {shown(measured['left'])} of where it began, {shown(first)} (limit {limit['vanishes']:g})."
        return Finding("vanishing", message, measured, norms.step_at(len(norms) - 1))
    return Finding("pass", f"{facts}, {shown(measured['left'])} of where it began.", measured)


QUESTION = Question(
    code="S3.1",
    name="exploding or vanishing gradients",
    asks="Does the gradient norm exceed 1000 in the first steps, or fall to nothing?",
    why="Weights that start too wide multiply gradients from layer to layer until they overflow; saturated or "
    "underflowing ones stop learning. C5.1, C3.1 and D1 say which, and whether it is a fault.",
    needs=("grad_norm",),
    panel=3,
    thresholds=(
        Threshold(
            name="explodes",
            value=1000,
            unit="",
            meaning="gradient norm, or times the first one where the loss is no cross-entropy",
            seed="1e3 and more within a few steps",
            decision="as specified for a cross-entropy, where healthy runs start below 13; a regression on raw "
            "numbers has "
            "5600 and is fine, so that other losses are compared with their first norm",
            of="highest",
        ),
        Threshold(
            name="within",
            value=20,
            unit="steps",
            meaning="how early",
            seed="a few steps",
            decision="the window of C3.1",
        ),
        Threshold(
            name="vanishes",
            value=1e-6,
            unit="of the first norms",
            meaning="what is left at the end",
            seed="",
            decision="a classifier that has learnt everything keeps 3e-4",
            of="-left",
        ),
        Threshold(
            name="ends",
            value=20,
            unit="norms",
            meaning="how many at either end are looked at together",
            seed="",
            decision="their median is not moved by one batch",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="gradients neither explode nor vanish"),
        Outcome(
            name="exploding",
            answer=NOTE,
            meaning="gradients explode in the first steps: see C5.1 for the weights, D1 for overflow",
        ),
        Outcome(name="vanishing", answer=NOTE, meaning="gradients have vanished: see C3.1 and, in low precision, D3"),
    ),
    find=find,
)
