"""Whether a task's loader gives the batches that were recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from steadyrun.probes.batch_hashes import arrays_of, batch_hash, example_hashes
from steadyrun.probes.example_hashes import is_list_of_batches, joined
from steadyrun.probes.scalars import untouched_random_states
from steadyrun.program.random_state import RandomState, put
from steadyrun.replay.compare import ReplayDifference
from steadyrun.replay.incident import Incident

_MOST = 500  # batches from the start of the run


def loader_difference(incident: Incident, loader: Iterable[Any] | None, random: RandomState) -> ReplayDifference | None:
    """Go through the loader from its start, as it is when built, and compare hashes with those of the first steps."""
    recorded = _from_the_start(incident)
    if loader is None or not recorded:
        return None
    pad = incident.view.manifest.get("config", {}).get("pad_id")
    with untouched_random_states():
        put(random)
        try:
            step = _first_other(loader, recorded, pad if isinstance(pad, int) else None)
        except Exception as problem:
            return ReplayDifference("data", f"the task's loader raised {type(problem).__name__}: {problem}")
    if step is None:
        return None
    return ReplayDifference(
        "data",
        f"the task's loader gives another batch at step {step} than the run had: its order is not fixed by a seed in "
        "the factory, or the data changed. The kept batches are replayed; the run as a whole cannot be",
    )


def _first_other(loader: Iterable[Any], recorded: list[int], pad: int | None) -> int | None:
    for step, batch in enumerate(islice(_endless(loader), len(recorded))):
        own_hash = _hash(batch, pad)
        if own_hash is not None and own_hash != recorded[step]:
            return step
    return None


def _from_the_start(incident: Incident) -> list[int]:
    """The hashes of the first steps, while each step had one batch."""
    if "batch_hash" not in incident.view.names():
        return []
    series = incident.view.series("batch_hash")
    steps = series.steps[:_MOST].tolist()
    known = next((index for index, step in enumerate(steps) if step != index), len(steps))
    return [int(value) for value in series.values[:known].tolist()]


def _endless(loader: Iterable[Any]) -> Iterator[Any]:
    while True:
        empty = True
        for batch in loader:
            empty = False
            yield batch
        if empty:
            return


def _hash(batch: Any, pad: int | None) -> int | None:
    parts = [arrays_of(part) for part in (batch if is_list_of_batches(batch) else [batch])]
    known = [hashes for part in parts if (hashes := example_hashes(part, pad)) is not None]
    return int(batch_hash(known[0] if len(known) == 1 else joined(known))) if known else None
