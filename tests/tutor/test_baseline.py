"""The n-gram model is a probability distribution, and a better guess than none."""

import math

import pytest

from steadyrun.tutor.baseline import NgramModel
from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.data import load_data


def test_probabilities_sum_to_one_in_every_seen_context() -> None:
    sentences = [[1, 5, 6, 2], [1, 5, 7, 2], [1, 6, 5, 2]]
    model = NgramModel(sentences, vocab_size=9)
    for before, previous in model.trigram_contexts:
        total = sum(model.probability(before, previous, token) for token in range(9))
        assert total == pytest.approx(1.0)


def test_deleted_interpolation_by_hand() -> None:
    # Two equal sentences: left-one-out, every trigram is still predicted with certainty by its context.
    model = NgramModel([[1, 5, 2], [1, 5, 2]], vocab_size=10)
    assert model.weights == (1.0, 0.0, 0.0)
    assert model.probability(1, 1, 5) == pytest.approx(0.99 + 0.01 / 10)
    assert model.loss([[1, 5, 2]]) == pytest.approx(-math.log(0.991))


def test_a_token_never_seen_costs_a_finite_price() -> None:
    model = NgramModel([[1, 5, 2]], vocab_size=10)
    assert model.loss([[1, 9, 2]]) < math.inf


def test_baseline_of_the_tutor() -> None:
    data = load_data(TutorConfig())
    assert 1.0 < data.baseline_loss() < 2.5
    fitted_on_it = NgramModel(data.train, data.tokenizer.get_vocab_size()).loss(data.train)
    assert fitted_on_it < data.baseline_loss() < math.log(data.tokenizer.get_vocab_size())
