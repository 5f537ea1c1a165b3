"""Fewer points that look the same: every pixel column keeps its lowest and highest, and what is not finite stays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steadyrun.signals.curves import thinned

Places = npt.NDArray[np.int64]

MOST = 2000  # points of one line
_BAD = 400  # non-finite points of one line: more than a panel has pixels


@dataclass(frozen=True)
class Lens:
    """Which steps one looks at, and after which step every point is kept.

    A live page draws with `newer`: what it showed stays as it was while points are added. A page that is zoomed looks
    at the steps from `first` to `last`, and at one point on either side, which the line comes from and goes to.
    """

    first: float = -np.inf
    last: float = np.inf
    newer: float = np.inf


_lens: ContextVar[Lens] = ContextVar("lens", default=Lens())  # noqa: B039  frozen


@contextmanager
def through(lens: Lens) -> Iterator[None]:
    """Draw lines through this lens, for as long as the block lasts."""
    before = _lens.set(lens)
    try:
        yield
    finally:
        _lens.reset(before)


def chosen(steps: npt.NDArray[np.int64], values: npt.NDArray[np.float64], most: int = MOST) -> Places:
    """Which points of a series to draw, seen through the lens of the moment."""
    lens = _lens.get()
    start = max(0, int(np.searchsorted(steps, lens.first, side="left")) - 1)
    end = min(len(steps), int(np.searchsorted(steps, lens.last, side="right")) + 1)
    new = min(max(start, int(np.searchsorted(steps, lens.newer, side="right"))), end)
    return np.concatenate([start + places(values[start:new], most), np.arange(new, end)])


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
