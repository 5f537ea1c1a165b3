"""A6.1: does the loss scale survive a resume?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown

_SHOWN = 20  # steps after a resume
_TINY = 1e-30  # no division by zero


def find(run: Signals, limit: Limits) -> Finding:
    seams = [event.step for event in run.events("resume") if event.step is not None]
    scale = run.maybe("loss_scale")
    if not seams or scale is None:
        raise NotApplicable("the run was not resumed" if not seams else "the loss is not scaled")
    factors = []
    for seam in seams:
        before, after = scale.where(scale.steps < seam), scale.from_step(seam)
        if not len(before) or not len(after):
            continue
        last, first = float(before.values[-1]), float(after.values[0])
        factor = max(last, first) / max(min(last, first), _TINY)
        factors.append(factor)
        if factor >= limit["factor"] and first != last:
            skipped = run.maybe("skipped")
            burst = 0 if skipped is None else int(np.sum(skipped.from_step(seam).values[:_SHOWN] > 0))
            message = f"At the resume at step {seam}, the loss scale jumped from {shown(last)} to {shown(first)} "
            message += f"(limit: a factor of {limit['factor']:g}). {burst} of the next {_SHOWN} steps were skipped."
            measured = {"before": last, "after": first, "factor": factor, "skipped": float(burst)}
            return Finding("lost", message, measured, seam)
    return Finding("pass", "The loss scale continued after the resume.", {"factor": max(factors, default=1.0)})


QUESTION = Question(
    code="A6.1",
    name="loss scale after a resume",
    asks="Does the loss scale continue when the run is resumed?",
    why="A new GradScaler starts at its initial scale: many overflows and skipped steps follow, or gradients "
    "underflow.",
    needs=("loss_scale",),
    panel=3,
    thresholds=(
        Threshold(
            name="factor",
            value=4,
            unit="times",
            meaning="how far the first scale after a resume may be from the last before it",
            seed="",
            decision="one update changes the scale by a factor of 2",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the loss scale was restored"),
        Outcome(
            name="lost",
            answer=FAULT,
            meaning="the loss scaler was not restored at the resume",
            fix="Save scaler.state_dict() with the checkpoint, and load it at the resume.",
            explains=("D2", "D3", "S1", "S3"),
        ),
    ),
    find=find,
    always=True,
)
