"""The order in which batches came: whether it repeats, and from where."""

from __future__ import annotations

import numpy as np

from steadyrun.signals.smoothing import Floats

_MOST = 100_000


def period(hashes: Floats) -> int | None:
    """After how many batches the very same sequence begins again; None where it never does for a whole round.

    At least one whole repetition must be there, and every later batch must fit.
    """
    hashes = hashes[:_MOST]
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
