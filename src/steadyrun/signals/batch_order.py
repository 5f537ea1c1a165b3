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
    for place in np.flatnonzero(hashes == hashes[0])[1:].tolist() if len(hashes) else []:
        if 2 * place > len(hashes):
            return None
        if np.array_equal(hashes[place : 2 * place], hashes[:place]) and np.array_equal(
            hashes[place:], hashes[:-place]
        ):
            return int(place)
    return None


def repeated_from(hashes: Floats, place: int, earlier: int = 0) -> int:
    """How many batches from `place` on are those from `earlier` on."""
    length = min(len(hashes) - place, place - earlier)
    if length <= 0:
        return 0
    different = hashes[place : place + length] != hashes[earlier : earlier + length]
    return int(np.argmax(different)) if np.any(different) else length
