"""A3.2: do predictions and targets have the same shape?"""

from __future__ import annotations

from steadyrun.questions.form import FAULT, PASS, Finding, Limits, Outcome, Question
from steadyrun.signals.intent import objective
from steadyrun.signals.run_signals import Signals


def find(run: Signals, _limit: Limits) -> Finding:
    shapes = objective(run).get("broadcast")
    if isinstance(shapes, list) and len(shapes) == 2:
        before, after = (tuple(shape) if isinstance(shape, list) else () for shape in shapes)
        rows = float(before[0]) if before else 0.0
        return Finding(
            "broadcast",
            f"Predictions of shape {before} were broadcast to {after}: each is compared with the targets of all "
            f"{rows:g} examples.",
            {"examples": rows, "compared": rows * rows},
        )
    return Finding("pass", "Predictions were not broadcast over the targets of the batch.")


QUESTION = Question(
    code="A3.2",
    name="matching shapes",
    asks="Is each prediction compared only with its own target?",
    why="Predictions of shape (N, 1) and targets of shape (N) broadcast to (N, N): the loss pulls every prediction to "
    "the mean of the batch, and the task looks impossible to learn.",
    needs=("objective",),
    panel=1,
    thresholds=(),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="predictions and targets have matching shapes"),
        Outcome(
            name="broadcast",
            answer=FAULT,
            meaning="each prediction is compared with every target of the batch",
            fix="Give both the same shape: predictions.squeeze(-1) or targets.unsqueeze(-1).",
            explains=("C1", "C3", "C4", "D4", "S"),
        ),
    ),
    find=find,
    always=True,
)
