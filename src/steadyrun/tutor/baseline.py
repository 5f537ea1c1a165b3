"""An interpolated n-gram model, whose validation loss a trained mini-GPT has to beat."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import chain

# The weight of the uniform distribution: small, but it gives unseen tokens a probability.
UNIFORM_WEIGHT = 0.01


class NgramModel:
    """Trigram, bigram, unigram and uniform probabilities, mixed with weights found by deleted interpolation.

    Sentences are lists of token ids that begin with <bos>; <bos> is context and is never predicted.
    """

    def __init__(self, sentences: Sequence[Sequence[int]], vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.trigrams = Counter(chain.from_iterable(_trigrams(sentence) for sentence in sentences))
        self.trigram_contexts = _count(self.trigrams, 0, 2)
        self.bigrams = _count(self.trigrams, 1, 3)
        self.bigram_contexts = _count(self.trigrams, 1, 2)
        self.unigrams = _count(self.trigrams, 2, 3)
        self.total = sum(self.unigrams.values())
        self.weights = self._deleted_interpolation()

    def probability(self, before: int, previous: int, token: int) -> float:
        """P(token | before, previous)."""
        estimates = self._estimates((before, previous, token), seen=0)
        mixed = sum(weight * estimate for weight, estimate in zip(self.weights, estimates, strict=True))
        return UNIFORM_WEIGHT / self.vocab_size + (1 - UNIFORM_WEIGHT) * mixed

    def loss(self, sentences: Sequence[Sequence[int]]) -> float:
        """Mean negative log-likelihood in nats per token."""
        trigrams = [trigram for sentence in sentences for trigram in _trigrams(sentence)]
        return -sum(math.log(self.probability(*trigram)) for trigram in trigrams) / len(trigrams)

    def _estimates(self, trigram: tuple[int, int, int], seen: int) -> tuple[float, float, float]:
        """Trigram, bigram and unigram estimates, without `seen` occurrences of this trigram."""
        before, previous, token = trigram
        return (
            _ratio(self.trigrams[trigram] - seen, self.trigram_contexts[before, previous] - seen),
            _ratio(self.bigrams[previous, token] - seen, self.bigram_contexts[previous,] - seen),
            _ratio(self.unigrams[token,] - seen, self.total - seen),
        )

    def _deleted_interpolation(self) -> tuple[float, float, float]:
        """Weights by vote: each training trigram votes for the order that predicts it best without itself."""
        votes = [0, 0, 0]
        for trigram, count in self.trigrams.items():
            estimates = self._estimates(trigram, seen=1)
            votes[estimates.index(max(estimates))] += count
        return votes[0] / self.total, votes[1] / self.total, votes[2] / self.total


def _trigrams(sentence: Sequence[int]) -> list[tuple[int, int, int]]:
    padded = [sentence[0], *sentence]
    return list(zip(padded, padded[1:], padded[2:], strict=False))


def _count(trigrams: Counter[tuple[int, int, int]], start: int, stop: int) -> Counter[tuple[int, ...]]:
    """Counts of one slice of the trigrams: `0, 2` is the context of a trigram, `2, 3` the token alone."""
    counts: Counter[tuple[int, ...]] = Counter()
    for trigram, count in trigrams.items():
        counts[trigram[start:stop]] += count
    return counts


def _ratio(count: int, total: int) -> float:
    return max(count, 0) / total if total > 0 else 0.0
