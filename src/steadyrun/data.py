"""Stratified batches: no rare token occurs twice in a batch.

from steadyrun.data import StratifiedBatchSampler

sampler = StratifiedBatchSampler([dataset[i]["input_ids"] for i in range(len(dataset))], batch_size=8, seed=42)
loader = torch.utils.data.DataLoader(dataset, batch_sampler=sampler)

Needs only numpy.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from steadyrun.errors import UsageError

Ints = npt.NDArray[np.int64]

RARE_BELOW = 10
_SHOWN = 3
_LOOKS = 32  # per example: how long an epoch may look for exchanges
_TRIES = 3  # batches with room into which an exchange may move


@dataclass(frozen=True)
class Violation:
    """Rare token that occurs more than once in a batch of an epoch."""

    batch: int
    token: int
    count: int


class StratifiedBatchSampler:
    """Batch sampler that spreads rare tokens: each example once per epoch, no rare token twice in a batch.

    A token is rare if all examples together contain it fewer than `rare_below` times. `tokens` holds the token ids of
    every example: a list of lists or arrays, an array with a row per example, or a function of the example's index
    (then `count` is the number of examples). It is read once. `drop_last` leaves out an incomplete last batch.

    Give it to a torch `DataLoader` as `batch_sampler`. The order depends only on `seed` and the epoch. Every pass over
    the sampler is the next epoch; `set_epoch` sets it for a resumed run.

    If a perfect spread is impossible (a token in more examples than there are batches, or twice in one example) it
    comes as close as it can: `violations` lists the exceptions of the current epoch, `message()` summarises them. There
    are none if each example has at most one rare token and no token is in more examples than there are full batches, or
    if no example shares rare tokens with more than half as many others as there are full batches.
    """

    def __init__(
        self,
        tokens: Sequence[Any] | npt.NDArray[Any] | Callable[[int], Any],
        batch_size: int,
        *,
        seed: int = 0,
        rare_below: int = RARE_BELOW,
        drop_last: bool = False,
        count: int | None = None,
    ) -> None:
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise UsageError(f"batch_size must be a whole number of at least 1, not {batch_size!r}")
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise UsageError(f"seed must be a whole number of at least 0, not {seed!r}")
        self.batch_size, self.seed, self.rare_below, self.drop_last = batch_size, seed, rare_below, drop_last
        self.violations: tuple[Violation, ...] = ()
        self._epoch = 0
        examples = _examples(tokens, count)
        self._count = len(examples)
        self._rare, self._often = _rare_tokens(examples, rare_below)
        self._hardness, self._group = _hardness(self._rare)

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        return self._count // self.batch_size if self.drop_last else -(-self._count // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass, counted from 0."""
        self._epoch = int(epoch)

    def __iter__(self) -> Iterator[list[int]]:
        batches = self._epoch_batches(self._epoch)
        self._epoch += 1
        return iter(batches)

    @property
    def rare_tokens(self) -> list[int]:
        """Token ids that count as rare."""
        return sorted({token for tokens in self._rare for token in tokens})

    def message(self) -> str:
        """Summarise the rare tokens that could not be kept apart in the current epoch; empty if all were."""
        if not self.violations:
            return ""
        worst = sorted(self.violations, key=lambda violation: -violation.count)[:_SHOWN]
        shown = ", ".join(
            f"token {violation.token} {violation.count} times in batch {violation.batch}" for violation in worst
        )
        more = f" and {len(self.violations) - len(worst)} more" if len(self.violations) > len(worst) else ""
        return f"rare tokens that could not be kept apart in {len(self)} batches: {shown}{more}"

    def _epoch_batches(self, epoch: int) -> list[list[int]]:
        rng = np.random.default_rng([self.seed, epoch])
        taking_part = self._taking_part(rng)
        plan = _Plan(self._rare, _sizes(len(taking_part), self.batch_size), rng)
        hard = taking_part[self._hardness[taking_part] >= 0]
        for example in self._hardest_first(hard, rng).tolist():
            plan.place(example)
        plan.fill(rng.permutation(taking_part[self._hardness[taking_part] < 0]).tolist())
        batches = self._in_random_order(plan.batches, rng)
        self.violations = tuple(self._what_is_left(batches))
        return batches

    def _taking_part(self, rng: np.random.Generator) -> Ints:
        """All examples; with `drop_last` as many of them as fill batches, others in every epoch."""
        kept = len(self) * self.batch_size if self.drop_last else self._count
        return np.sort(rng.permutation(self._count)[:kept])

    def _hardest_first(self, examples: Ints, rng: np.random.Generator) -> Ints:
        """Those that share their rare tokens with most others, the ones with the same token together."""
        luck = rng.permutation(int(self._group.max(initial=0)) + 1)
        keys = (rng.random(len(examples)), luck[self._group[examples]], -self._hardness[examples])
        return examples[np.lexsort(keys)]

    def _in_random_order(self, batches: list[list[int]], rng: np.random.Generator) -> list[list[int]]:
        """Batches and their rows mixed; one that is not full comes last."""
        full = [batch for batch in batches if len(batch) == self.batch_size]
        short = [batch for batch in batches if len(batch) < self.batch_size]
        mixed = [full[index] for index in rng.permutation(len(full)).tolist()]
        return [rng.permutation(batch).tolist() for batch in [*mixed, *short]]

    def _what_is_left(self, batches: list[list[int]]) -> Iterator[Violation]:
        for number, batch in enumerate(batches):
            counts: dict[int, int] = {}
            for example in batch:
                for token in self._rare[example]:
                    counts[token] = counts.get(token, 0) + self._often.get((example, token), 1)
            yield from (Violation(number, token, count) for token, count in sorted(counts.items()) if count > 1)


class _Plan:
    """The batches of one epoch while they are filled: an example goes where most room is and none of its tokens."""

    def __init__(self, rare: list[tuple[int, ...]], sizes: list[int], rng: np.random.Generator) -> None:
        self._rare = rare
        self._room = list(sizes)
        self.batches: list[list[int]] = [[] for _ in sizes]
        self._rare_in_batch: list[set[int]] = [set() for _ in sizes]
        self._luck = rng.permutation(len(sizes)).tolist()
        self._heap = [(-size, luck, batch) for batch, (size, luck) in enumerate(zip(sizes, self._luck, strict=True))]
        heapq.heapify(self._heap)
        self._looks = _LOOKS * sum(sizes)  # for examples to exchange, so that the time stays near linear

    def place(self, example: int) -> None:
        """Put an example into the roomiest batch where it fits; make it fit by an exchange; else accept the repeat."""
        with_room = self._until_fit(example)
        fits = self._rare_in_batch[with_room[-1]].isdisjoint(self._rare[example])
        if fits:
            self._put(example, with_room[-1])
        elif not any(self._exchange(example, roomy) for roomy in with_room[:_TRIES]):
            self._put(example, with_room[0])

    def fill(self, examples: list[int]) -> None:
        """Put examples without rare tokens where room is left."""
        left = iter(examples)
        for batch, room in enumerate(self._room):
            self.batches[batch] += [next(left) for _ in range(room)]

    def _until_fit(self, example: int) -> list[int]:
        """Batches with room, the roomiest first, up to the first one where the example fits."""
        passed, mine = [], self._rare[example]
        while self._heap:
            size, _, batch = entry = heapq.heappop(self._heap)
            if -size != self._room[batch] or not size:
                continue  # written before the batch took its last example
            passed.append(entry)
            if self._rare_in_batch[batch].isdisjoint(mine):
                break
        for entry in passed:
            heapq.heappush(self._heap, entry)
        return [batch for _, _, batch in passed]

    def _exchange(self, example: int, roomy: int) -> bool:
        """Move some example of a full batch into the one with room, so that this one can take its place."""
        for batch, members in enumerate(self.batches):
            if self._looks <= 0:
                return False
            self._looks -= 1
            if self._room[batch] or not self._rare_in_batch[batch].isdisjoint(self._rare[example]):
                continue
            self._looks -= len(members)
            for index, member in enumerate(members):
                if self._rare_in_batch[roomy].isdisjoint(self._rare[member]):
                    self._take(batch, index)
                    self._put(member, roomy)
                    self._put(example, batch)
                    return True
        return False

    def _take(self, batch: int, index: int) -> None:
        self.batches[batch].pop(index)
        self._room[batch] += 1
        self._rare_in_batch[batch] = {token for example in self.batches[batch] for token in self._rare[example]}

    def _put(self, example: int, batch: int) -> None:
        self.batches[batch].append(example)
        self._rare_in_batch[batch].update(self._rare[example])
        self._room[batch] -= 1
        if self._room[batch]:
            heapq.heappush(self._heap, (-self._room[batch], self._luck[batch], batch))


def _sizes(count: int, batch_size: int) -> list[int]:
    full, rest = divmod(count, batch_size)
    return [batch_size] * full + ([rest] if rest else [])


def _examples(tokens: Any, count: int | None) -> list[Ints]:
    """The token ids of every example as flat arrays."""
    if callable(tokens):
        if count is None:
            raise UsageError("tokens is a function: give the number of examples as count=")
        examples: Any = (tokens(number) for number in range(count))
    elif count is not None and count != len(tokens):
        raise UsageError(f"count is {count}, and tokens has {len(tokens)} examples")
    else:
        examples = tokens
    return [_ids(number, example) for number, example in enumerate(examples)]


def _ids(number: int, example: Any) -> Ints:
    ids = np.asarray(example)
    if ids.size and ids.dtype.kind not in "iu":
        raise UsageError(f"example {number} must hold token ids (whole numbers), not {ids.dtype}: {ids.ravel()[:3]}")
    return ids.ravel().astype(np.int64)


def _rare_tokens(examples: list[Ints], below: int) -> tuple[list[tuple[int, ...]], dict[tuple[int, int], int]]:
    """The rare tokens of every example, and how often one holds a token that it holds more than once."""
    rare: list[list[int]] = [[] for _ in examples]
    if not examples:
        return [], {}
    flat = np.concatenate(examples)
    owners = np.repeat(np.arange(len(examples)), [len(example) for example in examples])
    _, kinds, counts = np.unique(flat, return_inverse=True, return_counts=True)
    few = counts[kinds] < below
    pairs, times = np.unique(np.stack([owners[few], flat[few]]), axis=1, return_counts=True)
    for owner, token in pairs.T.tolist():
        rare[owner].append(token)
    often = {(int(o), int(t)): int(n) for (o, t), n in zip(pairs.T, times, strict=True) if n > 1}
    return [tuple(tokens) for tokens in rare], often


def _hardness(rare: list[tuple[int, ...]]) -> tuple[Ints, Ints]:
    """With how many others each example shares a rare token (-1: it has none), and the group of its commonest one."""
    holders: dict[int, int] = {}
    for tokens in rare:
        for token in tokens:
            holders[token] = holders.get(token, 0) + 1
    numbers = {token: number for number, token in enumerate(holders)}
    hardness = [sum(holders[token] - 1 for token in tokens) if tokens else -1 for tokens in rare]
    group = [numbers[max(tokens, key=lambda token: (holders[token], token))] if tokens else 0 for tokens in rare]
    return np.array(hardness, np.int64), np.array(group, np.int64)
