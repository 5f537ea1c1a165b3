"""R2.3: do all ranks have the same number of batches?"""

from __future__ import annotations

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.rank_data import loader_number
from steadyrun.signals.ranks import Group, Ranks, in_words
from steadyrun.signals.replicas import joined
from steadyrun.signals.run_signals import Signals

_HOW = {"stalled": "stalled", "process-failed": "failed", "crash": "failed"}


def find(run: Signals, limit: Limits) -> Finding:  # noqa: ARG001  numbers of batches are equal or not
    ranks = joined(run)
    groups = ranks.data_parallel
    if not groups:
        raise NotApplicable("it is not known which ranks train on different data")
    for group in groups:
        if (found := _stopped_after_another(ranks, group) or _unequal_loaders(ranks, group)) is not None:
            return found
    known = [rank for group in groups for rank in group if loader_number(ranks, rank, "batches")]
    if len(known) < 2:
        raise MissingSignal("loader", "the loaders of the ranks are not known", "use a DataLoader on every rank")
    return Finding("pass", f"All {len(known)} ranks have the same number of batches.", {"ranks": float(len(known))})


def _stopped_after_another(ranks: Ranks, group: Group) -> Finding | None:
    """A rank that ended in order, and another that stalled or failed at a step that the first never took."""
    ends = {rank: ranks.last_step(rank) for rank in group}
    done = {rank: end for rank, end in ends.items() if end is not None and _ended_in_order(ranks, rank)}
    stuck = [rank for rank, end in ends.items() if end is not None and ranks.of(rank).stopped[0]]
    if not done or not stuck:
        return None
    last = min(done.values())
    first_done = [rank for rank, end in done.items() if end == last]
    after = [rank for rank in stuck if _at(ranks, rank, ends[rank]) > last]
    if not after:
        return None
    kind = _HOW[ranks.of(after[0]).stopped[0]]
    words = f"{in_words(first_done)} ended after step {last}; {in_words(after)} went on and {kind} at step "
    words += f"{_at(ranks, after[0], ends[after[0]])}{_batches(ranks, (*first_done, *after))}."
    return Finding(
        "unequal",
        words[0].upper() + words[1:],
        {"last": float(last)},
        _at(ranks, after[0], ends[after[0]]),
        ranks=tuple(first_done),
    )


def _at(ranks: Ranks, rank: int, end: int | None) -> int:
    """The step at which a rank stopped."""
    step = ranks.of(rank).stopped[1]
    return step if step is not None else (end or 0) + 1


def _ended_in_order(ranks: Ranks, rank: int) -> bool:
    return ranks.of(rank).closed and not ranks.of(rank).stopped[0]


def _batches(ranks: Ranks, group: Group) -> str:
    numbers = {rank: loader_number(ranks, rank, "batches") for rank in group}
    known = {rank: number for rank, number in numbers.items() if number}
    if len(set(known.values())) < 2:
        return ""
    low, high = min(known, key=lambda rank: known[rank]), max(known, key=lambda rank: known[rank])
    return f" ({known[low]} batches per epoch on rank {low}, {known[high]} on rank {high})"


def _unequal_loaders(ranks: Ranks, group: Group) -> Finding | None:
    """Loaders of different lengths: with join, or a loop that ends for all ranks together, this does no harm."""
    if not (words := _batches(ranks, group)):
        return None
    stuck = [rank for rank in group if ranks.of(rank).stopped[0]]
    if stuck:
        kind, step = ranks.of(stuck[0]).stopped
        words = f"The ranks have unequal numbers of batches{words}, and {in_words(stuck)} {_HOW[kind]}"
        return Finding("unequal", f"{words} at step {step}.", {"stopped": float(len(stuck))}, step, ranks=tuple(stuck))
    return Finding("uneven", f"The ranks have unequal numbers of batches{words}.", {"stopped": 0.0})


QUESTION = Question(
    code="R2.3",
    name="equal numbers of batches",
    asks="Do all ranks have the same number of batches?",
    why="Every backward pass waits for all ranks. A rank that runs out of batches leaves the others waiting until a "
    "time-out ends the job.",
    needs=("batch",),
    panel=None,
    thresholds=(),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="all ranks have the same number of batches"),
        Outcome(
            name="unequal",
            answer=FAULT,
            meaning="a rank ran out of batches, and the others waited for it",
            fix="Use DistributedSampler(dataset) with drop_last=True or padding, or train inside "
            "torch.distributed.algorithms.join.Join([model]).",
            explains=("R4", "A7.1"),
            proved=True,
        ),
        Outcome(
            name="uneven",
            answer=NOTE,
            meaning="the ranks have unequal numbers of batches",
            fix="No action is needed inside Join([model]), or if all ranks end an epoch together; otherwise the ranks "
            "with more batches wait for the others.",
        ),
    ),
    find=find,
    always=True,
    special=True,
)
