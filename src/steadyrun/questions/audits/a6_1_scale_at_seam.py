"""A6.1: does the loss scale survive a resume?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals

_SHOWN = 20  # steps after a resume
_TINY = 1e-30  # no division by zero


def find(run: Signals, limit: Limits) -> Finding:
    seams = [event.step for event in run.events("resume") if event.step is not None]
    scale = run.maybe("loss_scale")
    if not seams or scale is None:
        raise NotApplicable("the run was not resumed" if not seams else "no loss is scaled")
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
            message = f"the loss scale was {last:g} before the resume at step {seam} and {first:g} after it"
            return Finding(
                "lost",
                f"{message}, {factor:g} times as {'large' if first > last else 'small'}; {burst} of the next "
                f"{_SHOWN} steps were skipped.",
                {"before": last, "after": first, "factor": factor, "skipped": float(burst)},
                seam,
            )
    return Finding("pass", "the loss scale went on where it was.", {"factor": max(factors, default=1.0)})


QUESTION = Question(
    code="A6.1",
    name="the loss scale after a resume",
    asks="Does the loss scale go on where it was when the run is resumed?",
    why="A new GradScaler starts at its first scale: a burst of overflows and skipped steps, or gradients that "
    "underflow.",
    needs=("loss_scale",),
    panel=3,
    thresholds=(
        Threshold(
            name="factor",
            value=4,
            unit="times",
            meaning="between the last scale before and the first after",
            seed="",
            decision="one step moves it by 2",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the scale was restored"),
        Outcome(
            name="lost",
            answer=FAULT,
            meaning="the scaler was not restored",
            fix="Save scaler.state_dict() with the checkpoint and load it at the resume.",
            explains=("D2", "D3", "S1", "S3"),
        ),
    ),
    find=find,
    always=True,
)
