"""The loss at first sight: which steps have new examples, also if the sample of hashes was thinned."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import Synthetic

from steadyrun.probes.hash_samples import HashSample
from steadyrun.signals.first_sight import first_sight, sights
from steadyrun.signals.run_signals import Signals


def trained(order: np.ndarray, size: int, **more: object) -> Signals:
    """A run that is given these examples in batches of a size, recorded as the probe does."""
    sample, batches = HashSample(), order.reshape(-1, size)
    for step, batch in enumerate(batches):
        sample.add(batch.astype(np.int64), step)
    kept = np.array(sample.take_new())
    loss = np.linspace(2.0, 1.0, len(batches))
    seen = {"example_hash/train": (kept[:, 1], kept[:, 0]), "examples": np.full(len(batches), float(size))}
    return Signals(Synthetic(loss=loss, **seen, **more))


def epochs(examples: int, rounds: int) -> np.ndarray:
    draw = np.random.default_rng(1)
    hashes = draw.choice(2**50, examples, replace=False)
    return np.concatenate([draw.permutation(hashes) for _ in range(rounds)])


@pytest.mark.parametrize(("examples", "size"), [(640, 32), (200_000, 1000)])
def test_the_first_epoch_is_first_sight(examples: int, size: int) -> None:
    losses = first_sight(trained(epochs(examples, 3), size))
    assert losses is not None
    first = examples // size
    assert len(losses) == pytest.approx(first, abs=0.1 * first)
    assert np.mean(losses.steps < first) > 0.9


def test_a_resumed_run_sees_its_examples_again() -> None:
    """A new process knows none of the old hashes and writes them once more."""
    steps = np.concatenate([np.arange(20), np.arange(20, 40)])
    hashes = np.concatenate([np.arange(20.0), np.arange(20.0)])
    run = Signals(Synthetic(loss=np.ones(40), examples=np.ones(40), **{"example_hash/train": (steps, hashes)}))
    losses = first_sight(run)
    assert losses is not None
    assert losses.steps.tolist() == list(range(20))


def test_validation_is_compared_up_to_the_first_one_after_the_last_new_example() -> None:
    val = ([9, 19, 29, 49, 59], [2.0, 1.9, 1.8, 1.7, 1.6])
    found = sights(trained(epochs(640, 3), 32, val_loss=val))
    assert [sight.step for sight in found] == [9, 19]
    assert [sight.val for sight in found] == [2.0, 1.9]
    assert found[1].level == pytest.approx(np.mean(np.linspace(2.0, 1.0, 60)[15:20]))


def test_nothing_is_known_without_hashes() -> None:
    assert first_sight(Signals(Synthetic(loss=np.ones(40)))) is None
    assert sights(Signals(Synthetic(loss=np.ones(40), val_loss=([9], [1.0])))) == []
