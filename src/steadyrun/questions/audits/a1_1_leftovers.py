"""A1.1: are gradients empty when backward begins?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.intent import in_a_row, sampled
from steadyrun.signals.run_signals import Signals
from steadyrun.text import counted, shown


def find(run: Signals, limit: Limits) -> Finding:
    left = sampled(run, "grad_norm_left")
    bad = left.values > 0
    measured = {"steps": float(len(left)), "left": float(np.sum(bad))}
    first = in_a_row(bad, limit["steps"])
    if first is not None:
        measured["norm"] = float(left.values[first])
        message = (
            f"In {np.sum(bad)} of {len(left)} sampled steps, backward started with gradients left from earlier steps "
            f"(norm {shown(left.values[first])} at step {left.step_at(first)})."
        )
        return Finding("not-cleared", message, measured, left.step_at(first))
    return Finding("pass", f"Gradients were empty before backward in {counted(len(left), 'sampled step')}.", measured)


QUESTION = Question(
    code="A1.1",
    name="gradients start empty",
    asks="Are gradients empty when the first backward pass after an optimizer step begins?",
    why="backward() adds to existing gradients. Without zero_grad() every update is the sum of all gradients so far: "
    "the norm drifts upward, and at a low learning rate nothing else shows.",
    needs=("grad_norm_left",),
    panel=3,
    thresholds=(
        Threshold(
            name="steps",
            value=3,
            unit="consecutive sampled steps",
            meaning="how many must show it",
            seed="",
            decision="three in a row are not an accident",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="gradients are cleared between steps"),
        Outcome(
            name="not-cleared",
            answer=FAULT,
            meaning="gradients of earlier steps are added to every update",
            fix="Call optimizer.zero_grad() once per optimizer step, before the first backward pass.",
            explains=("C1.2", "C3", "C4", "C6", "D1", "D2", "D4", "S1", "S3", "S4", "S5"),
        ),
    ),
    find=find,
    always=True,
)
