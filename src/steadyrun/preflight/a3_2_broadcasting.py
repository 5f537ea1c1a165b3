"""A3.2, before training: do predictions and targets have the same shape?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.preflight.same_cause import probe_of, same
from steadyrun.questions.audits.a3_2_broadcasting import QUESTION as RECORDED
from steadyrun.questions.form import Finding, Limits
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
            f"Predictions of shape {stretched.predictions} and {rows} targets broadcast to {stretched.compared}: the "
            f"loss compares each prediction with every target, {rows * rows:,} pairs for {rows} examples.",
            {"compared": float(rows * rows), "examples": float(rows)},
        )
    if not graph.comparison:
        raise NotApplicable("the loss does not compare numbers with numbers")
    return Finding("pass", f"{graph.comparison} compares each prediction with its own target.")


def _with_fewer_rows(bench: Bench, rows: int) -> bool:
    """Whether a batch with one row fewer also broadcasts; a dimension of the same length by accident does not."""
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


QUESTION = probe_of(
    RECORDED,
    asks="Is each prediction compared with its own target only?",
    needs=("loss_fn", "batches"),
    outcomes=(
        same(RECORDED, "pass"),
        same(RECORDED, "broadcast", ("C3", "C4", "S", "P3.5", "P6")),
    ),
    find=find,
)
