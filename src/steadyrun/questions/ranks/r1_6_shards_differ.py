"""R1.6: do the shards of tensor-parallel ranks differ?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.ranks import MIXED, PARAMETER, START, TENSOR, Group, Ranks, in_words
from steadyrun.signals.replicas import HOW, joined
from steadyrun.signals.run_signals import Signals


def find(run: Signals, limit: Limits) -> Finding:
    ranks = joined(run)
    groups = [(name, group) for name in ranks.classes for group in ranks.shards(name)]
    if ranks.kind not in {TENSOR, MIXED} or not groups:
        raise NotApplicable("the model is not tensor-parallel")
    compared = 0
    for name, group in groups:
        start = ranks.matrix(f"{START}/{name}").of(group)
        if not np.any(start.compared):
            continue
        compared += 1
        row = start.values[np.flatnonzero(start.compared)[0]]
        if len(np.unique(row[~np.isnan(row)])) > 1:
            continue
        if (found := _stay_equal(ranks, name, group, limit)) is not None:
            return found
    if not compared:
        raise MissingSignal(f"{START}/*", "no two tensor-parallel ranks have a digest of their first shards", HOW)
    return Finding("pass", "The shards of tensor-parallel ranks differ.", {"groups": float(compared)})


def _stay_equal(ranks: Ranks, name: str, group: Group, limit: Limits) -> Finding | None:
    """Shards that are still equal after steps: parameters that begin at zero part at the first one."""
    digests = ranks.matrix(f"{PARAMETER}/{name}").of(group)
    there = digests.compared
    if int(there.sum()) < limit["samples"] or np.any(digests.differs[there]):
        return None
    many, last = int(there.sum()), int(digests.steps[there][-1])
    words = f"{in_words(group)} begin with equal shards, and hold equal ones at all {many} sampled steps up to {last}."
    return Finding(
        "equal",
        words[0].upper() + words[1:],
        {"samples": float(many)},
        int(digests.steps[there][0]),
        ranks=tuple(group),
    )


QUESTION = Question(
    code="R1.6",
    name="different tensor-parallel shards",
    asks="Do the shards of tensor-parallel ranks differ from the start?",
    why="Shards that are drawn with the same seed are copies of each other: their units get the same gradients and "
    "stay copies, so the model has only a part of its size.",
    needs=("start_digest/*",),
    panel=5,
    thresholds=(
        Threshold(
            name="samples",
            value=2,
            unit="sampled steps",
            meaning="how many steps must show equal shards",
            seed="",
            decision="parameters that begin at zero have equal shards before the first step, and different ones after",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the shards of tensor-parallel ranks differ"),
        Outcome(
            name="equal",
            answer=FAULT,
            meaning="tensor-parallel ranks hold copies of the same shard",
            fix="Draw sharded parameters with a seed that depends on the tensor-parallel rank, or initialise the whole "
            "model before parallelize_module.",
            explains=("C5", "S4", "S5", "V1"),
            proved=True,
        ),
    ),
    find=find,
    always=True,
    special=True,
)
