"""P3.1: are predictions and targets of one shape?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.questions.form import FAULT, PASS, Finding, Limits, Outcome, Question
from steadyrun.signals.missing import NotApplicable

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench


def find(bench: Bench, _limit: Limits) -> Finding:
    graph = bench.first_pass().graph
    stretched = graph.broadcast
    if stretched is not None and _with_fewer_rows(bench, stretched.compared[0]):
        rows = stretched.compared[0]
        return Finding(
            "broadcast",
            f"predictions of shape {stretched.predictions} against {rows} targets give {stretched.compared}: each "
            f"prediction is compared with every target, {rows * rows} differences for {rows} examples.",
            {"compared": float(rows * rows), "examples": float(rows)},
        )
    if not graph.comparison:
        raise NotApplicable("no loss is seen that compares numbers with numbers")
    return Finding("pass", f"{graph.comparison} compares predictions and targets one by one.")


def _with_fewer_rows(bench: Bench, rows: int) -> bool:
    """Whether one example fewer is stretched over one target fewer: a side that happens to be as long is not."""
    from steadyrun.preflight.input_edits import fewer_rows
    from steadyrun.signals.missing import MissingSignal

    batch = fewer_rows(bench.batch(), rows)
    try:
        with bench.pristine():
            bench.modes(True)
            stretched = bench.observe(batch).graph.broadcast
    except MissingSignal:
        return False
    return stretched is not None and stretched.compared == (rows - 1, rows - 1)


QUESTION = Question(
    code="P3.1",
    name="shapes of predictions and targets",
    asks="Are predictions compared with their own targets, not each with all of them?",
    why="Predictions (N, 1) against targets (N) broadcast to (N, N) without an error. The best answer is then the mean "
    "of all targets, whatever the input, and that is what is learned.",
    needs=("loss_fn", "batches"),
    panel=None,
    thresholds=(),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="each prediction meets its own target"),
        Outcome(
            name="broadcast",
            answer=FAULT,
            meaning="each prediction is compared with every target",
            fix="Give both one shape: predictions.squeeze(-1), or targets.unsqueeze(-1).",
            explains=("C3", "C4", "S", "P3.5", "P6"),
        ),
    ),
    find=find,
)
