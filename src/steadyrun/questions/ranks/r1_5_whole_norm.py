"""R1.5: is the gradient clipped by the norm of all shards?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.curves import Floats
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.ranks import Group, Matrix, Ranks
from steadyrun.signals.replicas import joined
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    ranks = joined(run)
    groups = [group for name in ranks.classes for group in ranks.shards(name)]
    if not groups:
        raise NotApplicable("no parameters are sharded")
    if not ranks.matrix("clip_threshold").ranks:
        raise NotApplicable("the gradients are not clipped")
    compared = 0
    for group in dict.fromkeys(groups):
        local, used, steps = _aligned(ranks, group)
        whole = np.sqrt(np.sum(local.values**2, axis=1))
        compared += len(steps)
        if not len(steps):
            continue
        as_local = _near(used.values, local.values, limit["same"])
        apart = np.abs(local.values / np.where(whole > 0, whole, 1.0)[:, None] - 1) > limit["apart"]
        wrong = np.flatnonzero(np.all(as_local & apart, axis=1))
        if len(wrong) >= max(1.0, limit["fraction"] * len(steps)):
            return _finding(local, whole, steps, wrong)
    if not compared:
        raise MissingSignal("local_grad_norm", "the norms of the shards were not recorded on all ranks")
    return Finding("pass", f"The norm of the whole gradient was used at {compared} steps.", {"steps": float(compared)})


def _aligned(ranks: Ranks, group: Group) -> tuple[Matrix, Matrix, Floats]:
    """The shards' norms and those that clipping used, at the steps that all ranks of a group have."""
    local = ranks.matrix("local_grad_norm").of(group)
    used = ranks.matrix("clip_norm" if ranks.matrix("clip_norm").ranks else "grad_norm").of(group)
    if local.ranks != group or used.ranks != group:
        nothing = Matrix(np.empty(0, np.int64), group, np.empty((0, len(group))))
        return nothing, nothing, np.empty(0)
    steps, mine, theirs = np.intersect1d(local.steps, used.steps, return_indices=True)
    known = np.all(np.isfinite(local.values[mine]) & np.isfinite(used.values[theirs]), axis=1)
    cut = [Matrix(steps[known], group, each[known]) for each in (local.values[mine], used.values[theirs])]
    return cut[0], cut[1], steps[known].astype(float)


def _near(values: Floats, others: Floats, limit: float) -> np.ndarray:
    return np.asarray(np.abs(values - others) <= limit * np.maximum(np.abs(values), np.abs(others)))


def _finding(local: Matrix, whole: Floats, steps: Floats, wrong: np.ndarray) -> Finding:
    index = int(wrong[0])
    ranks, row = local.ranks, local.values[index]
    low, high = int(np.argmin(row)), int(np.argmax(row))
    words = (
        f"At {len(wrong)} of {len(steps)} steps, first at step {int(steps[index])}, each rank clipped by the norm of "
    )
    words += f"its own shard: {shown(row[low])} on rank {ranks[low]}, {shown(row[high])} on rank {ranks[high]}. "
    words += f"The norm of the whole gradient was {shown(whole[index])}."
    measured = {"differing": float(len(wrong)), "steps": float(len(steps)), "whole": float(whole[index])}
    return Finding("local-norm", words, measured, int(steps[index]), ranks=ranks)


QUESTION = Question(
    code="R1.5",
    name="clipping by the whole norm",
    asks="Is a sharded gradient clipped by the norm of all its shards?",
    why="A rank that holds a shard sees a part of the gradient. If it clips by the norm of this part, each shard is "
    "scaled by another factor, and the direction of the step is wrong.",
    needs=("local_grad_norm",),
    panel=3,
    thresholds=(
        Threshold(
            name="same",
            value=1e-3,
            unit="relative difference",
            meaning="a norm that is nearer to that of the shard is the shard's",
            seed="",
            decision="two ways to compute one norm in bf16 differ by less",
        ),
        Threshold(
            name="apart",
            value=0.01,
            unit="relative difference",
            meaning="how far every shard's norm must be from that of the whole gradient",
            seed="",
            decision="one shard may hold nearly the whole gradient; then its norm is right",
        ),
        Threshold(
            name="fraction",
            value=0.9,
            unit="fraction of the steps",
            meaning="how many steps must show it",
            seed="",
            decision="the code that clips is the same at every step",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the norm of the whole gradient is used"),
        Outcome(
            name="local-norm",
            answer=FAULT,
            meaning="each rank clips by the norm of its own shard",
            fix="Clip with torch.nn.utils.clip_grad_norm_(model.parameters(), …) on the DTensor gradients, or "
            "sum the squared norms of all shards with torch.distributed.all_reduce first.",
            explains=("C3", "S3", "R1.3:clip"),
            proved=True,
        ),
    ),
    find=find,
    always=True,
    special=True,
)
