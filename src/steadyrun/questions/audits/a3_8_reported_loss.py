"""A3.8: is the recorded loss the one that was differentiated?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, PASS, Finding, Limits, Outcome, Question
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.run_signals import Signals
from steadyrun.text import counted


def find(run: Signals, _limit: Limits) -> Finding:
    if not run.has("backward_loss") or not run.has("loss"):
        raise MissingSignal("backward_loss")
    given, root = run.raw("loss"), run.raw("backward_loss")
    steps, mine, theirs = np.intersect1d(given.steps, root.steps, return_indices=True)
    if run.has("skipped"):  # the scaler handles the steps that it skips
        skipped = run.raw("skipped")
        keep = ~np.isin(steps, skipped.steps[skipped.values > 0])
        steps, mine, theirs = steps[keep], mine[keep], theirs[keep]
    hidden = steps[np.isfinite(given.values[mine]) & ~np.isfinite(root.values[theirs])]
    measured = {"steps": float(len(steps)), "hidden": float(len(hidden))}
    if len(hidden):
        message = (
            f"At step {int(hidden[0])}, backward() ran on a NaN or infinite loss, but a finite loss was reported "
            f"({counted(len(hidden), 'such step')})."
        )
        return Finding("filtered", message, measured, int(hidden[0]))
    return Finding("pass", f"The reported loss hides no NaN or infinity in {len(steps):,} steps.", measured)


QUESTION = Question(
    code="A3.8",
    name="the reported loss is the real loss",
    asks="Is a NaN or infinite loss reported as such?",
    why="Some trainers and loggers replace NaN by the last finite value: the curve looks fine while every update is "
    "lost.",
    needs=("loss", "backward_loss"),
    panel=1,
    thresholds=(),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the reported loss hides no NaN"),
        Outcome(
            name="filtered",
            answer=FAULT,
            meaning="the reported loss hides NaN",
            fix="Report the loss before any filter (logging_nan_inf_filter=False), and look for the first NaN.",
            explains=("C4", "D3", "S"),
        ),
    ),
    find=find,
    always=True,
)
