"""The batches of a run: whether their order repeats, and which validation examples were also trained on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steadyrun.signals.curves import Floats

# The order in which batches came: whether it repeats, and from where.


_MOST_BATCHES = 100_000  # among which a period is looked for


def period(hashes: Floats) -> int | None:
    """After how many batches the very same sequence begins again; None where it never does for a whole round.

    At least one whole repetition must be there, and every later batch must fit.
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
    """How many batches from `index` on are those from `earlier` on."""
    length = min(len(hashes) - index, index - earlier)
    if length <= 0:
        return 0
    different = hashes[index : index + length] != hashes[earlier : earlier + length]
    return int(np.argmax(different)) if np.any(different) else length


# Which validation examples were also trained on, told from hashes.


_MOST_KEPT = 50_000  # above this many the recorder keeps only hashes divisible by a power of two


@dataclass(frozen=True)
class Overlap:
    """How many of the validation examples that can be compared were seen in training."""

    shared: int
    compared: int

    @property
    def share(self) -> float:
        return self.shared / self.compared if self.compared else 0.0


def overlap(training: Floats, validation: Floats) -> Overlap:
    """Both sides were thinned by the same rule: compare where neither was."""
    trained, held_out = np.unique(training.astype(np.int64)), np.unique(validation.astype(np.int64))
    modulus = max(thinned_by(trained), thinned_by(held_out))
    held_out = held_out[held_out % modulus == 0]
    return Overlap(int(np.isin(held_out, trained).sum()), len(held_out))


def thinned_by(hashes: npt.NDArray[np.int64]) -> int:
    """The power of two that divides all hashes which a sample of so many still keeps."""
    modulus = 1
    while int((hashes % modulus == 0).sum()) > _MOST_KEPT:
        modulus *= 2
    return modulus
