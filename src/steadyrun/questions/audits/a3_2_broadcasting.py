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
            f"predictions of shape {before} were compared with targets as {after}: each with the targets of all "
            f"{rows:g} examples.",
            {"examples": rows, "compared": rows * rows},
        )
    return Finding("pass", "no prediction was stretched over the targets of the batch.")


QUESTION = Question(
    code="A3.2",
    name="shapes of predictions and targets",
    asks="Are predictions compared with their own targets only?",
    why="Predictions of shape (N, 1) against targets (N) broadcast to (N, N): the loss pulls every prediction to the "
    "mean of the batch, and the curve looks like a task that cannot be learned.",
    needs=("objective",),
    panel=1,
    thresholds=(),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="shapes match"),
        Outcome(
            name="broadcast",
            answer=FAULT,
            meaning="each prediction is compared with every target of the batch",
            fix="Give both the same shape: predictions.squeeze(-1), or targets.unsqueeze(-1).",
            explains=("C1", "C3", "C4", "D4", "S"),
        ),
    ),
    find=find,
    always=True,
)
