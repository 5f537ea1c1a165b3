"""What questions see of a run: clean series, and what is missing."""

import math

import numpy as np
import pytest
from synthetic import Synthetic

from steadyrun.signals.batches import overlap
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.run_signals import Signals


def test_only_finite_points_before_the_first_non_finite_value() -> None:
    run = Signals(Synthetic(loss=[3, 2, math.nan, math.nan], grad_norm=[1, 1, 1, 1], **{"lr/0": [1, 1, 1, 1]}))
    assert run.first_nonfinite == (2, "loss")
    assert run.points("loss").values.tolist() == [3, 2]
    assert run.points("lr/0").values.tolist() == [1, 1]


def test_a_step_that_the_scaler_skipped_is_ordinary() -> None:
    run = Signals(Synthetic(loss=[3, 2, 1], grad_norm=[math.inf, 1, 1], skipped=[1, 0, 0]))
    assert run.first_nonfinite is None
    assert run.points("grad_norm").steps.tolist() == [1, 2]


def test_unsorted_and_repeated_steps() -> None:
    run = Signals(Synthetic(loss=([2, 0, 1, 0], [20, 5, 10, 6])))
    assert run.points("loss").steps.tolist() == [0, 1, 2]
    assert run.points("loss").values.tolist() == [6, 10, 20]


def test_what_is_missing_says_how_to_record_it() -> None:
    with pytest.raises(MissingSignal) as caught:
        Signals(Synthetic()).points("val_loss")
    assert caught.value.name == "val_loss"
    assert "run.val" in caught.value.how


def test_overlap_against_sets() -> None:
    rng = np.random.default_rng(0)
    training = rng.integers(0, 2**52, 5000).astype(float)
    validation = np.concatenate([training[:30], rng.integers(0, 2**52, 70).astype(float)])
    shared = overlap(training, validation)
    assert (shared.shared, shared.compared) == (30, 100)


def test_overlap_where_the_recorder_kept_only_a_part() -> None:
    """Above 50,000 training examples only hashes divisible by a power of two are kept."""
    rng = np.random.default_rng(0)
    everything = rng.integers(0, 2**52, 390_000)
    kept = everything[everything % 8 == 0]
    assert len(kept) <= 50_000
    early = everything[:40_000]  # written before the sample filled up
    validation = np.concatenate([everything[-1000:], rng.integers(0, 2**52, 1000)])
    shared = overlap(np.concatenate([early, kept]).astype(float), validation.astype(float))
    assert shared.share == pytest.approx(0.5, abs=0.1)


def test_what_was_recorded_without_a_finite_value_is_told_apart_from_what_was_not() -> None:
    run = Signals(Synthetic(**{"lr/0": [math.nan, math.nan]}))
    with pytest.raises(MissingSignal, match=r"lr/\* has no finite value"):
        run.family("lr/*")
    with pytest.raises(MissingSignal, match=r"activation/\* was not recorded"):
        run.family("activation/*")
