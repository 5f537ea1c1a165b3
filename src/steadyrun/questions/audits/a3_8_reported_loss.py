"""A3.8: is the recorded loss the one that was differentiated?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, PASS, Finding, Limits, Outcome, Question
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.run_signals import Signals


def find(run: Signals, _limit: Limits) -> Finding:
    if not run.has("backward_loss") or not run.has("loss"):
        raise MissingSignal("backward_loss")
    given, root = run.raw("loss"), run.raw("backward_loss")
    steps, mine, theirs = np.intersect1d(given.steps, root.steps, return_indices=True)
    if run.has("skipped"):  # what the scaler skipped is its business
        skipped = run.raw("skipped")
        keep = ~np.isin(steps, skipped.steps[skipped.values > 0])
        steps, mine, theirs = steps[keep], mine[keep], theirs[keep]
    hidden = steps[np.isfinite(given.values[mine]) & ~np.isfinite(root.values[theirs])]
    measured = {"steps": float(len(steps)), "hidden": float(len(hidden))}
    if len(hidden):
        return Finding(
            "filtered",
            f"backward() began from a loss that is not a number at step {int(hidden[0])}, and a finite loss was "
            "reported "
            f"({len(hidden)} such steps).",
            measured,
            int(hidden[0]),
        )
    return Finding(
        "pass", f"what was reported is finite wherever what was differentiated is, {len(steps)} steps.", measured
    )


QUESTION = Question(
    code="A3.8",
    name="the reported loss is the real one",
    asks="Is a loss that is not a number reported as such?",
    why="Some trainers and loggers replace NaN by the last finite value: the curve looks fine while every update is "
    "lost.",
    needs=("loss", "backward_loss"),
    panel=1,
    thresholds=(),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the reported loss hides nothing"),
        Outcome(
            name="filtered",
            answer=FAULT,
            meaning="a NaN was filtered out of the reported loss",
            fix="Report the loss before any filter (logging_nan_inf_filter=False), and look for the first NaN.",
            explains=("C4", "D3", "S"),
        ),
    ),
    find=find,
    always=True,
)
