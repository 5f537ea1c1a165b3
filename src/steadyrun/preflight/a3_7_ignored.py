"""A3.7, before training: does every batch have a label in the loss?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from steadyrun.preflight.label_trials import first_trials, label_sources, more_trials
from steadyrun.preflight.same_cause import probe_of, same
from steadyrun.questions.audits.a3_7_ignored import QUESTION as RECORDED
from steadyrun.questions.form import Finding, Limits

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench
    from steadyrun.preflight.guarded_pass import GuardedPass


def find(bench: Bench, _limit: Limits) -> Finding:
    trials = first_trials(bench)
    for index, guarded in trials:
        if (finding := _empty(index, guarded)) is not None:
            return finding
    sources = label_sources(bench, trials)
    for index, guarded in more_trials(bench, sources):
        if (finding := _empty(index, guarded)) is not None:
            return finding
    of = f"Each of the {len(bench.batches)} batches" if sources and len(bench.batches) > 1 else "The tried batch"
    return Finding("pass", f"{of} has labels that are not ignored, or a finite loss without them.")


def _empty(index: int, guarded: GuardedPass) -> Finding | None:
    """The finding for a batch whose labels are all ignored and whose loss is not finite."""
    empty = next((targets for targets in guarded.targets if targets.mean and targets.none_left), None)
    if empty is None or guarded.loss is None or math.isfinite(guarded.loss):
        return None
    return Finding(
        "nothing-to-learn",
        f"All {empty.values.size:,} labels of batch {index} are {empty.ignore_index} and ignored: the mean over no "
        f"labels is {guarded.loss:g}.",
        {"labels": float(empty.values.size), "counting": 0.0},
    )


QUESTION = probe_of(
    RECORDED,
    asks="Does every tried batch have at least one label in its loss?",
    needs=("loss_fn", "batches"),
    outcomes=(same(RECORDED, "pass"), same(RECORDED, "nothing-to-learn", ("P3", "D1"))),
    find=find,
)
