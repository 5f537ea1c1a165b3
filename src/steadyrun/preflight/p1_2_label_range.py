"""P1.2: is every label a class of the model's scores?"""

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
    span = f"{counted.min()} to {counted.max()}" if counted.size else "all ignored"
    of = f"all {len(bench.batches)} batches" if sources and len(bench.batches) > 1 else "the tried batch"
    return Finding(
        "pass",
        f"All labels of {of} are within {first.classes} classes. The first batch has {span}, {percent(share)} of "
        "its labels are in the loss.",
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
            f"Batch {index} has label {problem.value}, the model scores {problem.size} classes (0 to "
            f"{problem.size - 1}, ignored: {targets.ignore_index}). Out of range: {wrong} of {targets.values.size} "
            "labels.",
            {"label": float(problem.value), "classes": float(problem.size), "no_class": float(wrong)},
        )
    return None


def _one_class(bench: Bench, sources: Sources, least: float) -> Finding | None:
    """The finding if all labels of all batches are the same class."""
    for targets, source in sources:
        values = [labels for batch in bench.batches if (labels := source.of(integers(batch))) is not None]
        classes = {int(value) for labels in values for value in np.unique(labels)} - {targets.ignore_index}
        count = sum(int((labels != targets.ignore_index).sum()) for labels in values)
        if len(classes) == 1 and targets.classes > 1 and count >= least:
            message = f"All {count:,} labels in the loss are class {classes.pop()} of {targets.classes} classes."
            return Finding("one-class", message, {"classes": float(targets.classes), "labels": float(count)})
    return None


QUESTION = Question(
    code="P1.2",
    name="labels within the classes",
    asks="Is every label one of the classes that the model scores?",
    why="A label outside the scored classes stops training at its batch.",
    needs=("loss_fn", "batches"),
    panel=None,
    thresholds=(
        Threshold(
            name="labels",
            value=100,
            unit="labels",
            meaning="labels of a single class that are worth a note",
            seed="",
            decision="rare classes may be missing from that many labels by chance, so this is only a note",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="every label is one of the classes"),
        Outcome(
            name="one-class",
            answer=NOTE,
            meaning="all labels are the same class",
        ),
        Outcome(
            name="no-such-class",
            answer=FAULT,
            meaning="a label is outside the model's classes",
            fix="Number classes from 0, give the head one score per class, and set labels to skip to ignore_index "
            "(-100).",
            explains=("P3.3", "D1"),
        ),
    ),
    find=find,
    tried=True,
)
