"""A3.7: does every batch have a target that is not masked?"""

from __future__ import annotations

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals


def find(run: Signals, _limit: Limits) -> Finding:
    if not run.has("ignored_labels"):
        raise NotApplicable("no recorded batch has masked labels")
    ignored = run.raw("ignored_labels")
    empty = ignored.steps[ignored.values >= 1]
    measured = {"batches": float(len(ignored.steps)), "without_target": float(len(empty))}
    if not len(empty):
        message = f"All {len(ignored.steps):,} batches with masked labels also have labels that count."
        return Finding("pass", message, measured)
    bad = set(run.not_finite("loss")[0].tolist()) if run.has("loss") else set()
    at = sorted(set(empty.tolist()) & bad)
    if at:
        message = f"All labels of the batch at step {at[0]} are masked, and its loss is NaN or infinite."
        return Finding("nothing-to-learn", message, measured, at[0])
    return Finding("empty", f"All labels of the batch at step {int(empty[0])} are masked.", measured, int(empty[0]))


QUESTION = Question(
    code="A3.7",
    name="batches have targets",
    asks="Does every batch have at least one label that is not masked?",
    why="A mean over no targets is 0/0: one batch whose labels are all masked makes the loss NaN, and then every "
    "weight.",
    needs=("batch",),
    panel=1,
    thresholds=(),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="every batch has targets"),
        Outcome(
            name="nothing-to-learn",
            answer=FAULT,
            meaning="a batch without any target made the loss NaN",
            fix="Skip such batches, or divide the summed loss by max(1, number of targets).",
            explains=("D1", "D3", "C", "S", "A7"),
        ),
        Outcome(name="empty", answer=NOTE, meaning="a batch has no target", fix="Skip such batches."),
    ),
    find=find,
    always=True,
)
