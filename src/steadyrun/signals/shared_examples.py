"""Which validation examples were also trained on, told from hashes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steadyrun.signals.smoothing import Floats

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
    modulus = max(_modulus(trained), _modulus(held_out))
    held_out = held_out[held_out % modulus == 0]
    return Overlap(int(np.isin(held_out, trained).sum()), len(held_out))


def _modulus(hashes: npt.NDArray[np.int64]) -> int:
    modulus = 1
    while int((hashes % modulus == 0).sum()) > _MOST_KEPT:
        modulus *= 2
    return modulus
