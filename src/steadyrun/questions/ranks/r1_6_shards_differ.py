"""R1.6: do the shards of tensor-parallel ranks differ?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.ranks import MIXED, PARAMETER, START, TENSOR, Group, Matrix, Ranks, in_words, matrix_of
from steadyrun.signals.replicas import HOW, joined
from steadyrun.signals.run_signals import Signals
from steadyrun.store.ranks import Column
from steadyrun.text import listed

_MOST_RANKS = 64  # of a group, whose shards are compared


def find(run: Signals, limit: Limits) -> Finding:
    ranks = joined(run)
    groups = [(name, group) for name in ranks.classes for group in ranks.shards(name)]
    if ranks.kind not in {TENSOR, MIXED} or not groups:
        raise NotApplicable("the model is not tensor-parallel")
    compared = 0
    for name, group in groups:
        starts = _starts(ranks, name, group)
        compared += len(starts)
        copies = {tensor: found for tensor, start in starts.items() if (found := _copies(start))}
        if not copies:
            continue
        return _stay_equal(ranks, name, group, limit) or _some(copies, starts)
    if not compared:
        raise MissingSignal(f"{START}/*", "no two tensor-parallel ranks have a digest of their first shards", HOW)
    return Finding("pass", "The shards of tensor-parallel ranks differ.", {"tensors": float(compared)})


def _starts(ranks: Ranks, name: str, group: Group) -> dict[str, Matrix]:
    """By tensor: the digests of a group's first shards, of tensors with more than one value."""
    columns: dict[str, dict[int, Column]] = {}
    for rank in group[:_MOST_RANKS]:
        for tensor, column in ranks.block_columns(rank, f"{START}/{name}/").items():
            columns.setdefault(tensor, {})[rank] = column
    starts = {tensor: matrix_of(found) for tensor, found in columns.items()}
    return {tensor: start for tensor, start in starts.items() if np.any(start.compared) and np.all(start.values != 0)}


def _copies(start: Matrix) -> Group:
    """The ranks whose first shard of a tensor another rank has too."""
    row = start.values[np.flatnonzero(start.compared)[0]]
    return tuple(rank for rank, value in zip(start.ranks, row.tolist(), strict=True) if np.sum(row == value) > 1)


def _some(copies: dict[str, Group], starts: dict[str, Matrix]) -> Finding:
    ranks = tuple(sorted(set().union(*copies.values())))
    words = (
        f"{len(copies)} of {len(starts)} sharded tensors begin as copies on {in_words(ranks)}: {listed(list(copies))}."
    )
    return Finding(
        "perhaps-equal", words, {"copies": float(len(copies)), "tensors": float(len(starts))}, 0, ranks=ranks
    )


def _stay_equal(ranks: Ranks, name: str, group: Group, limit: Limits) -> Finding | None:
    """Shards that are still equal after steps."""
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
        Outcome(
            name="perhaps-equal",
            answer=SUSPECT,
            meaning="some tensors begin as copies on tensor-parallel ranks",
            fix="Draw sharded parameters with a seed that depends on the tensor-parallel rank, or initialise the whole "
            "model before parallelize_module.",
            experiment="Print a few numbers of the named shards on two ranks before the first step. If they are equal "
            "and are not meant to be, as with repeated key and value heads, the seed is the same on both.",
        ),
    ),
    find=find,
    always=True,
    special=True,
)
