"""Thin a line without changing its look: each pixel column keeps its extremes, and non-finite points stay."""

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
    """The visible steps, and the step after which every point is kept.

    A live page draws with `newer`, so that drawn points stay while others are added. A zoomed page shows the steps from
    `first` to `last`, and one point on either side to continue the line.
    """

    first: float = -np.inf
    last: float = np.inf
    newer: float = np.inf


_lens: ContextVar[Lens] = ContextVar("lens", default=Lens())  # noqa: B039  frozen


@contextmanager
def through(lens: Lens) -> Iterator[None]:
    """Draw lines through this lens within the block."""
    before = _lens.set(lens)
    try:
        yield
    finally:
        _lens.reset(before)


def visible() -> tuple[float, float]:
    """The first and the last step to draw, with the current lens."""
    lens = _lens.get()
    return lens.first, lens.last


def chosen(steps: npt.NDArray[np.int64], values: npt.NDArray[np.float64], most: int = MOST) -> Places:
    """The points of a series to draw, with the current lens."""
    lens = _lens.get()
    start = max(0, int(np.searchsorted(steps, lens.first, side="left")) - 1)
    end = min(len(steps), int(np.searchsorted(steps, lens.last, side="right")) + 1)
    new = min(max(start, int(np.searchsorted(steps, lens.newer, side="right"))), end)
    return np.concatenate([start + places(values[start:new], most), np.arange(new, end)])


def places(values: npt.NDArray[np.float64], most: int = MOST) -> Places:
    """The points to keep: about `most`, in order.

    It keeps the first and the last, the minima and maxima, and the non-finite points; of more than 400 of those, an
    even selection with the ends of every long stretch.
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
    """All of a few indices; of many an even selection, and the ends of each stretch if there are few stretches."""
    if len(bad) <= _BAD:
        return bad
    breaks = np.flatnonzero(np.diff(bad) > 1)
    ends = np.sort(np.concatenate([bad[:1], bad[breaks], bad[breaks + 1], bad[-1:]]))
    return np.concatenate([bad[thinned(len(bad), _BAD // 2)], ends[thinned(len(ends), _BAD // 2)]])
