"""P1.2: is every label a class that the scores have?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steadyrun.preflight.batch_arrays import integers
from steadyrun.preflight.label_trials import Sources, first_trials, label_sources, more_trials
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.text import percent

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench
    from steadyrun.preflight.guarded_pass import GuardedPass


def find(bench: Bench, limit: Limits) -> Finding:
    trials = first_trials(bench)
    for index, guarded in trials:
        if (finding := _wrong(index, guarded)) is not None:
            return finding
    sources = label_sources(bench, trials)
    for index, guarded in more_trials(bench, sources):
        if (finding := _wrong(index, guarded)) is not None:
            return finding
    first = trials[-1][1].targets[0]
    one_class = _one_class(bench, sources, limit["labels"])
    if one_class is not None:
        return one_class
    counted = first.values[first.values != first.ignore_index]
    share = counted.size / max(1, first.values.size)
    span = f"{counted.min()} to {counted.max()}" if counted.size else "none that counts"
    of = f"all {len(bench.batches)} batches" if sources else "the batch that was run"
    return Finding(
        "pass",
        f"the labels of {of} are classes of the {first.classes} scores; in the first batch {span}, {percent(share)} of "
        "them count.",
        {"classes": float(first.classes), "counting": share},
    )


def _wrong(index: int, guarded: GuardedPass) -> Finding | None:
    problem = guarded.problem
    if problem is not None and problem.kind == "label":
        targets = guarded.targets[-1]
        outside = (targets.values < 0) | (targets.values >= targets.classes)
        wrong = int((outside & (targets.values != targets.ignore_index)).sum())
        return Finding(
            "no-such-class",
            f"batch {index}: label {problem.value} among scores for {problem.size} classes (0 to {problem.size - 1}; "
            f"{targets.ignore_index} would be ignored); {wrong} of {targets.values.size} labels are no class.",
            {"label": float(problem.value), "classes": float(problem.size), "no_class": float(wrong)},
        )
    return None


def _one_class(bench: Bench, sources: Sources, least: float) -> Finding | None:
    """All labels of all batches are one and the same class."""
    for targets, source in sources:
        values = [labels for batch in bench.batches if (labels := source.of(integers(batch))) is not None]
        classes = {int(value) for labels in values for value in np.unique(labels)} - {targets.ignore_index}
        count = sum(int((labels != targets.ignore_index).sum()) for labels in values)
        if len(classes) == 1 and targets.classes > 1 and count >= least:
            message = f"all {count} labels that count are class {classes.pop()}, of {targets.classes}."
            return Finding("one-class", message, {"classes": float(targets.classes), "labels": float(count)})
    return None


QUESTION = Question(
    code="P1.2",
    name="labels within their classes",
    asks="Is every label one of the classes that the model scores?",
    why="A label beyond the scores ends training when its batch comes.",
    needs=("loss_fn", "batches"),
    panel=None,
    thresholds=(
        Threshold(
            name="labels",
            value=100,
            unit="labels",
            meaning="of one and the same class before it is worth a note",
            seed="",
            decision="rare classes may be absent from as many labels by chance: only a note",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="every label is a class"),
        Outcome(
            name="one-class",
            answer=NOTE,
            meaning="all labels are the same: sorted data, a rare other class, or a mask in the place of the labels",
        ),
        Outcome(
            name="no-such-class",
            answer=FAULT,
            meaning="a label is no class of the scores",
            fix="Count classes from 0, give the head one score per class, and mark what is not to be learned with "
            "ignore_index (-100).",
            explains=("P3.3", "D1"),
        ),
    ),
    find=find,
    tried=True,
)
