"""Fewer points that look the same: every pixel column keeps its lowest and highest, and what is not finite stays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steadyrun.signals.smoothing import thinned

Places = npt.NDArray[np.int64]

MOST = 2000  # points of one line
_BAD = 400  # non-finite points of one line: more than a panel has pixels


def places(values: npt.NDArray[np.float64], most: int = MOST) -> Places:
    """Which points to keep: about `most`, in order.

    Kept are the first and the last, the lowest and the highest, and the non-finite ones; of more than 400 of those, an
    even choice with the ends of every long stretch.
    """
    if len(values) <= most:
        return np.arange(len(values))
    finite = np.isfinite(values)
    good, bad = np.flatnonzero(finite), np.flatnonzero(~finite)
    ends = np.array([0, len(values) - 1])
    return np.unique(np.concatenate([ends, good[_extremes(values[good], most)], _few(bad)]))


def _extremes(values: npt.NDArray[np.float64], most: int) -> Places:
    if len(values) <= most:
        return np.arange(len(values))
    from tsdownsample import MinMaxDownsampler

    downsampler = MinMaxDownsampler()  # type: ignore[no-untyped-call]
    kept = downsampler.downsample(np.ascontiguousarray(values), n_out=most - most % 2)
    return np.asarray(kept, np.int64)


def _few(bad: Places) -> Places:
    """All of a few places; of many an even choice, and the two ends of each stretch as far as these are few."""
    if len(bad) <= _BAD:
        return bad
    breaks = np.flatnonzero(np.diff(bad) > 1)
    ends = np.sort(np.concatenate([bad[:1], bad[breaks], bad[breaks + 1], bad[-1:]]))
    return np.concatenate([bad[thinned(len(bad), _BAD // 2)], ends[thinned(len(ends), _BAD // 2)]])
