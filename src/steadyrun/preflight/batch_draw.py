"""Batches from a loader, whose generators, samplers and workers are restored afterwards."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from steadyrun.probes.batch_hashes import arrays_of
from steadyrun.program.random_state import kept_generators

MOST_BATCHES = 64  # read; the model runs on far fewer
FEWEST_BATCHES, MOST_BYTES, MOST_SECONDS = 4, 2**30, 30.0  # of a loader


def first_of(batches: Iterable[Any] | None, count: int = MOST_BATCHES) -> list[Any]:
    """The first batches of a list or a loader, which is restored; fewer if they are large or slow."""
    if batches is None:
        return []
    if isinstance(batches, list | tuple):
        return list(batches[:count])
    drawn: list[Any] = []
    size, began = 0, time.monotonic()
    with untouched_loader(batches):
        for batch in itertools.islice(iter(batches), count):
            drawn.append(batch)
            size += sum(array.nbytes for array in arrays_of(batch))
            if len(drawn) >= FEWEST_BATCHES and (size > MOST_BYTES or time.monotonic() - began > MOST_SECONDS):
                break
    return drawn


def can_be_drawn_from(loader: Any) -> bool:
    """Whether drawing batches leaves no trace: a list, or a torch loader over an indexed dataset."""
    if isinstance(loader, list | tuple):
        return True
    return hasattr(loader, "batch_sampler") and hasattr(getattr(loader, "dataset", None), "__getitem__")


@contextmanager
def untouched_loader(loader: Any) -> Iterator[None]:
    """Restore a torch loader after the body draws from it: its generators, and the workers it started."""
    put_back = kept_generators(loader)
    running = getattr(loader, "_iterator", None)
    try:
        yield
    finally:
        for restore in put_back:
            restore()
        started = getattr(loader, "_iterator", None)
        if started is not None and started is not running:
            getattr(started, "_shutdown_workers", lambda: None)()
            loader._iterator = running
