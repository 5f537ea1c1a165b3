"""The batches of a run: repeated order, and validation examples that are also in the training set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steadyrun.signals.curves import Floats

# The order of the batches: whether and from which index it repeats.


_MOST_BATCHES = 100_000  # that are searched for a period


def period(hashes: Floats) -> int | None:
    """The number of batches after which the same sequence repeats; None if it does not repeat.

    The record must contain at least one whole repetition, and every later batch must fit.
    """
    hashes = hashes[:_MOST_BATCHES]
    for index in np.flatnonzero(hashes == hashes[0])[1:].tolist() if len(hashes) else []:
        if 2 * index > len(hashes):
            return None
        if np.array_equal(hashes[index : 2 * index], hashes[:index]) and np.array_equal(
            hashes[index:], hashes[:-index]
        ):
            return int(index)
    return None


def repeated_from(hashes: Floats, index: int, earlier: int = 0) -> int:
    """How many batches from `index` on equal those from `earlier` on."""
    length = min(len(hashes) - index, index - earlier)
    if length <= 0:
        return 0
    different = hashes[index : index + length] != hashes[earlier : earlier + length]
    return int(np.argmax(different)) if np.any(different) else length


# Validation examples that are also in the training set, by their hashes.


_MOST_KEPT = 50_000  # with more, the recorder keeps only hashes divisible by a power of two


@dataclass(frozen=True)
class Overlap:
    """How many of the comparable validation examples were seen in training."""

    shared: int
    compared: int

    @property
    def share(self) -> float:
        return self.shared / self.compared if self.compared else 0.0


def overlap(training: Floats, validation: Floats) -> Overlap:
    """Compare the hashes that both sides keep: both are thinned by the same rule."""
    trained, held_out = np.unique(training.astype(np.int64)), np.unique(validation.astype(np.int64))
    modulus = max(thinned_by(trained), thinned_by(held_out))
    held_out = held_out[held_out % modulus == 0]
    return Overlap(int(np.isin(held_out, trained).sum()), len(held_out))


def thinned_by(hashes: npt.NDArray[np.int64]) -> int:
    """The power of two by which a sample of this size keeps only divisible hashes."""
    modulus = 1
    while int((hashes % modulus == 0).sum()) > _MOST_KEPT:
        modulus *= 2
    return modulus
