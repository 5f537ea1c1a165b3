"""The data of the ranks: batches and examples that several ranks see, and what their loaders are set to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from steadyrun.signals.batches import thinned_by
from steadyrun.signals.ranks import Group, Matrix, Ranks
from steadyrun.signals.run_signals import Signals


def shared(matrix: Matrix) -> dict[int, float]:
    """By rank: the fraction of the compared steps at which another rank has the same value."""
    rows = matrix.values[matrix.compared]
    same = np.zeros(len(matrix.ranks))
    for row in rows:
        _, inverse, counts = np.unique(row, return_inverse=True, return_counts=True)
        same += (counts[inverse] > 1) & ~np.isnan(row)
    there = np.maximum(1, np.sum(~np.isnan(rows), axis=0))
    return {rank: float(part) for rank, part in zip(matrix.ranks, same / there, strict=True)}


def loader_number(ranks: Ranks, rank: int, key: str) -> int | None:
    """A whole number among the facts of a rank's loader."""
    value = ranks.of(rank).loader.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def epoch_steps(run: Signals, ranks: Ranks, rank: int) -> tuple[int, ...]:
    """How many steps an epoch of a rank has; empty if its loader is not known.

    With several backward passes per step, each may have a batch of its own or a part of one: then there are two
    answers, the shorter first.
    """
    batches = loader_number(ranks, rank, "batches")
    if not batches or batches < 1:
        return ()
    backwards = run.maybe("backwards")
    per_step = 1 if backwards is None else max(1, int(np.median(backwards.values)))
    return tuple(sorted({max(1, batches // per_step), batches}))


@dataclass(frozen=True)
class Coverage:
    """The examples of a group of ranks within their first epoch."""

    seen: int  # sum over the ranks of different examples
    different: int  # over all ranks
    most: int  # of the rank with most
    fewest: int
    duplicates: float | None  # fraction of a rank's examples that it saw before; None if they are not counted

    @property
    def repeated(self) -> int:
        """Examples that a rank saw although another did."""
        return self.seen - self.different


def coverage(run: Signals, ranks: Ranks, group: Group) -> Coverage | None:
    """Compare the examples of the first epoch; None if the epoch or the examples are not known."""
    epochs = [epoch_steps(run, ranks, rank) for rank in group]
    if not all(epochs):
        return None
    length = min(epoch[0] for epoch in epochs)
    within = {rank: _first_epoch(column, length) for rank, column in ranks.examples(group).items()}
    if len(within) < 2 or not all(len(hashes) for hashes in within.values()):
        return None
    modulus = max(thinned_by(hashes) for hashes in within.values())
    kept = [np.unique(hashes[hashes % modulus == 0]) for hashes in within.values()]
    sizes = [len(hashes) for hashes in kept]
    different = len(np.unique(np.concatenate(kept)))
    return Coverage(sum(sizes), different, max(sizes), min(sizes), _duplicates(ranks, within, length))


def _first_epoch(column: Any, length: int) -> Any:
    steps, hashes = column
    return hashes[steps < steps[0] + length].astype(np.int64) if len(steps) else hashes


def _duplicates(ranks: Ranks, within: dict[int, Any], length: int) -> float | None:
    """How often a rank sees an example again within an epoch, on the rank with most; None if they are not counted."""
    found = []
    for rank, hashes in within.items():
        steps, counts = ranks.column("examples", rank)
        part = counts[steps < steps[0] + length] if len(steps) else counts
        if len(part) == length and np.sum(part) >= len(hashes):
            found.append(1 - len(hashes) / float(np.sum(part)))
    return max(found, default=None)


def sampler_fault(ranks: Ranks, group: Group) -> str:
    """In words: why the samplers of a group do not split the data; "" if they do or nothing is known."""
    facts = {key: [loader_number(ranks, rank, key) for rank in group] for key in ("num_replicas", "rank", "seed")}
    parts, members, seeds = facts["num_replicas"], facts["rank"], facts["seed"]
    if any(number is None for number in parts):
        return ""
    if min(number for number in parts if number is not None) < len(group):
        return f"a sampler splits the data into {min(part for part in parts if part is not None)} parts for "
    if len(set(members)) < len(members):
        return "two samplers have the same rank among "
    return "the samplers have different seeds on " if len(set(seeds)) > 1 else ""


def all_shuffle(ranks: Ranks, group: Group) -> bool:
    """Whether the loaders of all ranks of a group are known to shuffle."""
    return all(ranks.of(rank).loader.get("shuffles") is True for rank in group)


def splits(ranks: Ranks, group: Group) -> bool:
    """Whether the samplers of a group are known to split the data without overlap."""
    known = all(loader_number(ranks, rank, key) is not None for rank in group for key in ("num_replicas", "rank"))
    return known and not sampler_fault(ranks, group)
