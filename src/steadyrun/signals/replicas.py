"""Where ranks that should agree do not: digests compared by step, the blocks that differ, and how far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from steadyrun.records import Series
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.nonfinite import lasting
from steadyrun.signals.ranks import GRADIENT, PARAMETER, START, Group, Matrix, Ranks, in_words, matrix_of
from steadyrun.signals.run_signals import Signals
from steadyrun.store.ranks import Column

HOW = "call run.watch(model, optimizer) on every rank before training"
_NORMS = "block_param_norm/"

_TINY = 1e-300  # instead of a division by zero
_MOST_RANKS = 8  # whose blocks are compared if the structure is not known


def joined(run: Signals) -> Ranks:
    """The ranks of a run; `NotApplicable` if it has one process."""
    if run.ranks is None:
        raise NotApplicable("the run has one process")
    return run.ranks


def nothing_to_compare(ranks: Ranks, kind: str) -> Exception:
    """Why no digests of one kind can be compared: other ranks left no files, or there are no replicas."""
    if ranks.replicas_are_missing:
        why = f"{in_words(ranks.missing)} left no files to compare with"
        return MissingSignal(f"{kind}/*", why, "call steadyrun.record with the same folder on every rank")
    return NotApplicable("no ranks are known to be replicas")


def first_bad(run: Signals) -> dict[int, int]:
    """By rank: the first step from which its loss is never finite again; only ranks that have one.

    Every step counts here, so the losses are read whole, but only if a loss is not finite.
    """
    ranks = joined(run)
    if "first bad" not in ranks.memo:
        known = [rank for rank in ranks.present if _was_finite(ranks.column("loss", rank))]
        ended = any(not np.isfinite(ranks.column("loss", rank)[1][-1]) for rank in known)
        ranks.memo["first bad"] = dict(_first_bad(ranks, known)) if ended or run.first_nonfinite is not None else {}
    found: dict[int, int] = ranks.memo["first bad"]
    return found


def _was_finite(column: Column) -> bool:
    return bool(np.any(np.isfinite(column[1])))


def _first_bad(ranks: Ranks, known: Sequence[int]) -> Iterator[tuple[int, int]]:
    for rank in known:
        steps, values = ranks.series(rank, "loss")
        bad = lasting(Series("loss", steps, values, np.empty(0)), list(ranks.of(rank).seams.values())[1:])
        if len(bad):
            yield rank, int(bad[0])


def healthy_until(run: Signals) -> int | None:
    """The step before which all values are finite: digests of NaN are not compared."""
    bad = [*first_bad(run).values(), *([run.first_nonfinite[0]] if run.first_nonfinite is not None else [])]
    return min(bad, default=None)


@dataclass(frozen=True)
class Difference:
    """Digests of a group of ranks that should agree, at the steps that two ranks or more have."""

    name: str  # the class of parameters
    group: Group
    digests: Matrix

    @property
    def steps(self) -> list[int]:
        """The steps at which they differ."""
        return [int(step) for step in self.digests.steps[self.digests.differs]]

    @property
    def compared(self) -> int:
        return int(self.digests.compared.sum())

    def odd(self, step: int) -> Group:
        return self.digests.odd(int(np.searchsorted(self.digests.steps, step)))

    def last_equal(self, step: int) -> int | None:
        """The last step before this one at which they agree."""
        earlier = self.digests.steps[self.digests.compared & ~self.digests.differs & (self.digests.steps < step)]
        return int(earlier[-1]) if len(earlier) else None

    def pair(self, step: int) -> tuple[int, int]:
        """Two ranks that differ at a step, the odd one last."""
        row = self.digests.values[int(np.searchsorted(self.digests.steps, step))]
        last = self.odd(step)[-1]
        mine = row[self.digests.ranks.index(last)]
        others = [rank for rank, value in zip(self.digests.ranks, row.tolist(), strict=True) if value not in (mine,)]
        return next(rank for rank in others if not np.isnan(row[self.digests.ranks.index(rank)])), last


def differences(run: Signals, kind: str) -> list[Difference]:
    """By class and group: the digests of one kind, before the first non-finite value."""
    ranks = joined(run)
    end = healthy_until(run)
    found = [
        Difference(name, group, ranks.matrix(f"{kind}/{name}").of(group).before(end))
        for name in ranks.classes
        for group in ranks.groups(name)
    ]
    return [each for each in found if each.compared]


def unequal_blocks(
    ranks: Ranks, found: Difference, kind: str, step: int, *, random: bool = False
) -> tuple[list[str], list[str]]:
    """The blocks that differ between two ranks at a step, and those that agree and change during the run.

    With `random`, those that agree and hold more than constants, which the digest 0 stands for.
    """
    pair = found.pair(step)
    one, other = (ranks.block_columns(rank, f"{kind}/{found.name}/") for rank in pair)
    unequal, equal = [], []
    for block in one.keys() & other.keys():
        mine, theirs = _at(one[block], step), _at(other[block], step)
        if mine is None or theirs is None:
            continue
        if mine != theirs:
            unequal.append(block)
        elif mine != 0 if random else len(np.unique(one[block][1])) > 1:
            equal.append(block)
    return sorted(unequal), sorted(equal)


@dataclass(frozen=True)
class BlockAgreement:
    """The blocks of ranks whose structure is not known, by their gradients at all sampled steps."""

    ranks: Group
    equal: tuple[str, ...]  # on all ranks, and they change during the run
    unequal: tuple[str, ...]
    begin_equal: tuple[str, ...]  # of the unequal ones, those whose parameters are equal before the first step
    steps: tuple[int, ...]  # that were compared
    agree_again: tuple[int, ...] = ()  # the sampled steps at which all parameters agree after they had differed


def block_agreement(run: Signals, fewest: float) -> BlockAgreement | None:
    """Of blocks with so many samples; None if each rank has other blocks, as in a pipeline, or none has any."""
    ranks, end = joined(run), healthy_until(run)
    compared = ranks.present[:_MOST_RANKS]
    gradients, starts = (_by_block(ranks, compared, kind) for kind in (GRADIENT, START))
    if not gradients or any(len(columns) < len(compared) for columns in gradients.values()):
        return None
    found = {block: matrix_of(columns).before(end) for block, columns in gradients.items()}
    found = {block: matrix for block, matrix in found.items() if int(matrix.compared.sum()) >= fewest}
    equal = [block for block, matrix in found.items() if not np.any(matrix.differs) and _changes(matrix)]
    unequal = [block for block, matrix in found.items() if np.all(matrix.differs[matrix.compared])]
    begin_equal = [block for block in unequal if _begins_equal(matrix_of(starts.get(block, {})))]
    steps = sorted({int(step) for block in unequal for step in found[block].steps[found[block].compared]})
    return BlockAgreement(
        compared, tuple(equal), tuple(unequal), tuple(begin_equal), tuple(steps), _agree_again(ranks, compared)
    )


def _agree_again(ranks: Ranks, compared: Group) -> tuple[int, ...]:
    matrices = [ranks.matrix(f"{PARAMETER}/{name}").of(compared) for name in ranks.classes]
    apart = {int(step) for each in matrices for step in each.steps[each.differs]}
    together = {int(step) for each in matrices for step in each.steps[each.compared]} - apart
    return tuple(sorted(step for step in together if apart and step > min(apart)))


def _by_block(ranks: Ranks, compared: Group, kind: str) -> dict[str, dict[int, Column]]:
    """By block and rank: the digests of one kind."""
    found: dict[str, dict[int, Column]] = {}
    for rank in compared:
        for name in ranks.classes:
            for block, column in ranks.block_columns(rank, f"{kind}/{name}/").items():
                found.setdefault(block, {})[rank] = column
    return dict(sorted(found.items()))


def _changes(matrix: Matrix) -> bool:
    return len(np.unique(matrix.values[matrix.compared][:, 0])) > 1


def _begins_equal(starts: Matrix) -> bool:
    """Whether a block begins with equal values that are not constants, which the digest 0 stands for."""
    return bool(np.any(starts.compared)) and not np.any(starts.differs) and bool(np.any(starts.values != 0))


def _at(column: Column, step: int) -> float | None:
    index = int(np.searchsorted(column[0], step))
    return float(column[1][index]) if index < len(column[0]) and column[0][index] == step else None


def distance(ranks: Ranks, pair: tuple[int, int]) -> tuple[str, float] | None:
    """The block whose norms differ most between two ranks at their last common sample, and by which fraction."""
    one, other = (ranks.block_columns(rank, _NORMS) for rank in pair)
    apart = {}
    for block in one.keys() & other.keys():
        steps, first, second = np.intersect1d(one[block][0], other[block][0], return_indices=True)
        if len(steps):
            mine, theirs = float(one[block][1][first[-1]]), float(other[block][1][second[-1]])
            apart[block] = abs(mine - theirs) / max(abs(mine), abs(theirs), _TINY)
    return max(apart.items(), key=lambda item: item[1]) if apart else None


def who(found: Difference, step: int) -> str:
    """In words: which ranks differ at a step."""
    odd = found.odd(step)
    rest = len(found.digests.ranks) - len(odd)
    if not rest or len(odd) == len(found.digests.ranks):
        return f"all {len(odd)} ranks differ" if len(odd) > 2 else f"{in_words(odd)} differ"
    return f"{in_words(odd)} {'differs' if len(odd) == 1 else 'differ'} from the other {rest}"
