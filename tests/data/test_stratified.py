"""Batches without repeated rare tokens, against a checker that simply counts."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import steadyrun
from steadyrun.data import StratifiedBatchSampler, Violation

corpora = st.lists(st.lists(st.integers(0, 30), max_size=6), max_size=40)


def repeated(examples: list[list[int]], batches: list[list[int]], below: int) -> set[tuple[int, int, int]]:
    """Every batch, rare token and count above one: slow and obvious."""
    counts = Counter(token for row in examples for token in row)
    found = set()
    for number, batch in enumerate(batches):
        for token, count in counts.items():
            here = sum(examples[example].count(token) for example in batch)
            if count < below and here > 1:
                found.add((number, token, here))
    return found


def as_set(violations: tuple[Violation, ...]) -> set[tuple[int, int, int]]:
    return {(each.batch, each.token, each.count) for each in violations}


@given(corpora, st.integers(1, 7), st.integers(0, 5), st.booleans())
def test_every_example_once_and_what_is_left_is_told(
    examples: list[list[int]], size: int, seed: int, drop: bool
) -> None:
    sampler = StratifiedBatchSampler(examples, size, seed=seed, rare_below=4, drop_last=drop)
    batches = list(sampler)
    flat = [example for batch in batches for example in batch]
    assert len(batches) == len(sampler)
    assert len(set(flat)) == len(flat) == (len(examples) // size * size if drop else len(examples))
    assert set(flat) <= set(range(len(examples)))
    assert all(len(batch) == size for batch in batches[:-1])
    assert as_set(sampler.violations) == repeated(examples, batches, 4)
    assert bool(sampler.message()) == bool(sampler.violations)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=60), st.integers(1, 8), st.integers(0, 3))
def test_one_token_each_is_always_kept_apart_where_batches_suffice(tokens: list[int], size: int, seed: int) -> None:
    full = len(tokens) // size
    most = max(Counter(tokens).values())
    sampler = StratifiedBatchSampler([[token] for token in tokens], size, seed=seed, rare_below=most + 1)
    list(sampler)
    if most <= full:
        assert sampler.violations == ()


def conflicts(examples: list[list[int]]) -> int:
    """With how many others an example shares a token, at most."""
    sets = [set(row) for row in examples]
    return max(sum(bool(mine & other) for other in sets) - bool(mine) for mine in sets)


@settings(max_examples=300)
@given(st.lists(st.sets(st.integers(0, 60), max_size=3).map(list), min_size=1, max_size=60), st.integers(1, 5))
def test_many_tokens_are_kept_apart_where_no_example_has_too_many_rivals(examples: list[list[int]], size: int) -> None:
    sampler = StratifiedBatchSampler(examples, size, rare_below=1000)
    list(sampler)
    if 2 * conflicts(examples) <= len(examples) // size:
        assert sampler.violations == ()


@given(corpora, st.integers(1, 5), st.integers(0, 5))
def test_the_order_depends_on_seed_and_epoch_alone(examples: list[list[int]], size: int, seed: int) -> None:
    one, two = (StratifiedBatchSampler(examples, size, seed=seed) for _ in range(2))
    epochs = [list(one) for _ in range(3)]
    two.set_epoch(2)
    assert list(two) == epochs[2]
    two.set_epoch(0)
    assert list(two) == epochs[0]


def test_epochs_and_seeds_differ() -> None:
    examples = [[number % 50] for number in range(200)]
    sampler = StratifiedBatchSampler(examples, 8)
    first, second = list(sampler), list(sampler)
    assert first != second
    assert first != list(StratifiedBatchSampler(examples, 8, seed=1))
    assert sampler.violations == ()


def test_only_rare_tokens_are_kept_apart() -> None:
    examples = [[1, 2] if number < 9 else [1] for number in range(18)]
    sampler = StratifiedBatchSampler(examples, 2)
    assert sampler.rare_tokens == [2]
    assert all(sum(example < 9 for example in batch) == 1 for batch in sampler)


def test_what_cannot_be_done_is_said_and_done_as_well_as_possible() -> None:
    sampler = StratifiedBatchSampler([[7]] * 5 + [[8, 8]] + [[0]] * 20, 13)
    batches = list(sampler)
    assert sorted(each.count for each in sampler.violations) == [2, 2, 3]
    assert sorted(sum(example < 5 for example in batch) for batch in batches) == [2, 3]
    assert "token 7 3 times in batch" in sampler.message()


def test_examples_as_arrays_tensors_rows_or_a_function() -> None:
    rows = [[number % 20, 99] for number in range(60)]
    wanted = list(StratifiedBatchSampler(rows, 4))
    assert list(StratifiedBatchSampler(np.array(rows), 4)) == wanted
    assert list(StratifiedBatchSampler([torch.tensor(row) for row in rows], 4)) == wanted
    assert list(StratifiedBatchSampler(lambda number: rows[number], 4, count=60)) == wanted


def test_it_is_a_batch_sampler() -> None:
    data = torch.arange(30)
    sampler = StratifiedBatchSampler([[number // 3] for number in range(30)], 5)
    loader = torch.utils.data.DataLoader(data, batch_sampler=sampler)
    for _ in range(2):
        seen = [batch.tolist() for batch in loader]
        assert sorted(number for batch in seen for number in batch) == list(range(30))
        assert all(len({number // 3 for number in batch}) == 5 for batch in seen)


def test_nothing_at_all() -> None:
    sampler = StratifiedBatchSampler([], 4)
    assert list(sampler) == []
    assert len(sampler) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([[1]], 0), "batch_size must be"),
        (([[0.5]], 1), "example 0 must hold token ids"),
        ((lambda number: [number], 1), "number of examples as count="),
    ],
)
def test_wrong_use_is_refused(arguments: tuple[object, int], words: str) -> None:
    with pytest.raises(steadyrun.UsageError, match=words):
        StratifiedBatchSampler(*arguments)  # type: ignore[arg-type]
