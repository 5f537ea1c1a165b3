"""Batch hashes per step, and a bounded sample of example hashes from training and validation."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from steadyrun.probes.batch_groups import BatchFacts, facts_of, shape_of
from steadyrun.probes.batch_hashes import (
    Array,
    arrays_of,
    batch_hash,
    count_tokens,
    example_hashes,
    example_sums,
    folded,
    from_tensor,
    ignored_labels,
    inputs_and_targets,
    is_list_of_batches,
    joined,
    label_hash,
    nonfinite_values,
    repeated_tokens,
)
from steadyrun.probes.hash_samples import HashSample, TargetMemory
from steadyrun.probes.problems import Problems, say
from steadyrun.probes.row_queue import HostArray, ProbeRow, Values
from steadyrun.probes.scalars import untouched_random_states
from steadyrun.store.writer import RunWriter

if TYPE_CHECKING:
    from steadyrun.program.packing import Packed

_SMALL_BYTES = 65_536  # of an array whose copy costs less than to look at it between two training steps
_MOST_BATCHES, _MOST_BYTES, _MOST_SECONDS = 10_000, 8 * 2**30, 60.0  # that are read of one validation


@dataclass(slots=True)
class _Later:
    """A batch that waits to be looked at."""

    row: ProbeRow
    copies: list[list[Array]] | None = None
    kept: Packed | None = None  # by capture, instead of copies
    several: bool = False  # micro-batches
    facts: BatchFacts | None = None

    @property
    def parts(self) -> list[list[Array]]:
        """The arrays of the batch, those of each micro-batch apart."""
        return _parts_of(self.kept, self.several) if self.kept is not None else self.copies or []


def look_together(waiting: list[_Later], pad_id: int | None) -> None:
    """Give the batches of one shape their facts; the others, and those that cannot be joined, have none."""
    groups: dict[Any, list[tuple[_Later, list[Array]]]] = {}
    for later in waiting:
        parts = later.parts
        if len(parts) == 1 and (shape := shape_of(parts[0], pad_id)) is not None:
            groups.setdefault(shape, []).append((later, parts[0]))
    for group in groups.values():
        with suppress(Exception):  # looked at one by one, which says what is wrong
            for (later, _), facts in zip(group, facts_of([arrays for _, arrays in group], pad_id), strict=True):
                later.facts = facts


class ExampleProbe:
    """Looks at the batches handed to `run.step` and `run.val`."""

    def __init__(self, writer: RunWriter, pad_id: int | None, problems: Problems) -> None:
        self._writer = writer
        self._problems = problems
        self._pad_id = pad_id if isinstance(pad_id, int) else None
        self._kept = {"train": HashSample(), "val": HashSample()}
        self._targets = TargetMemory()
        self._waiting: list[_Later] = []

    def training(self, batch: Any, row: ProbeRow, kept: Packed | None = None) -> None:
        """Put the hash and the sizes of a step's batch into its row; a list of micro-batches counts as one.

        If capture has `kept` a small batch, its copy is looked at later.
        """
        several = is_list_of_batches(batch)
        if kept is not None and kept.plain and max(kept.sizes, default=0) <= _SMALL_BYTES:
            self._look_later(_Later(row, kept=kept, several=several))
            return
        parts = [arrays_of(part) for part in (batch if several else [batch])]
        arrays = [array for part in parts for array in part]
        if any(not isinstance(array, np.ndarray) or array.nbytes > _SMALL_BYTES for array in arrays):
            self._describe(parts, row)
            return
        # Looked at later; the training loop may reuse its buffers, so it is a copy that waits.
        self._look_later(_Later(row, copies=[[array.copy() for array in part] for part in parts]))

    def _look_later(self, later: _Later) -> None:
        self._waiting.append(later)
        later.row.do_later(self._look, later)

    def _look(self, _row: ProbeRow, later: _Later) -> None:
        """The first row whose turn it is has all that wait looked at, those of one shape together."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            look_together(waiting, self._pad_id)
        if (facts := later.facts) is None:
            self._describe(later.parts, later.row)
            return
        later.row.values.update(facts.values)
        if facts.apart is not None:
            self._targets.look(*facts.apart, later.row)
        self._keep("train", facts.examples, later.row.step)

    def _describe(self, parts: list[list[Array]], row: ProbeRow) -> None:
        summed = [sums for part in parts if (sums := example_sums(part, self._pad_id))]
        per_part = [folded([total for _, total in sums]) for sums in summed]
        if not per_part:
            self._problems.unavailable("batch hash", "no tensors or arrays were found in the batch given to run.step")
            return
        examples = per_part[0] if len(per_part) == 1 else joined(per_part)
        row.put("examples", float(examples.shape[0]))
        row.put("tokens", _total([count_tokens(part, self._pad_id) for part in parts]))
        row.put("repeated_tokens", repeated_tokens(parts[0], self._pad_id))
        row.put("ignored_labels", ignored_labels(parts[0]))
        row.put("batch_nonfinite", nonfinite_values([array for part in parts for array in part]))
        labels = label_hash(parts[0])
        row.put("label_hash", float(labels) if isinstance(labels, np.generic) else labels)
        self._put_targets(summed[0], row)
        if isinstance(examples, np.ndarray):
            row.put("batch_hash", float(batch_hash(examples)))
            self._keep("train", examples, row.step)
        else:
            row.put("batch_hash", batch_hash(examples))
            row.put_many(examples, lambda array: self._keep("train", array, row.step))

    def _put_targets(self, summed: list[tuple[Array, Array]], row: ProbeRow) -> None:
        if (pair := inputs_and_targets(summed)) is not None:
            together = batch_hash(pair[1])
            row.put("target_hash", float(together) if isinstance(together, np.generic) else together)
            self._targets.look(*pair, row)

    def validation(self, batches: Any, step: int) -> dict[str, float]:
        """Keep the example hashes of the validation batches, once per distinct example; what identifies the pass.

        Inputs and class labels apart: the same labels in the same order over other inputs are the same examples,
        changed. What is cut at a number of batches or bytes is cut alike in every pass; what took too long is not, so
        it identifies nothing.
        """
        count, inputs, labels = 0, [], []
        bound = _Bound()
        with closing(_batches(batches)) as loader:
            for batch in loader:
                arrays = arrays_of(batch)
                if not isinstance(batches, list | tuple) and bound.reached(arrays):
                    self._say_cut(bound)
                    break
                hashes = example_hashes(arrays, self._pad_id)
                if hashes is not None:
                    self._keep("val", _on_host(hashes), step)
                    count += int(hashes.shape[0])
                    inputs.append(_on_host(example_hashes(arrays[:1])))
                    if len(arrays) == 2 and arrays[1].ndim == 1 and (classes := _on_host(arrays[1])).dtype.kind in "iu":
                        labels.append(classes)
        facts = {"examples": float(count)}
        if bound.too_slow:
            return facts
        if inputs:
            facts["inputs_hash"] = float(batch_hash(np.concatenate(inputs)))
        if labels:
            joint = np.concatenate(labels).astype(np.int64)
            counts = np.unique(joint, return_counts=True)[1]
            facts["labels_hash"], facts["classes"] = float(batch_hash(joint)), float(len(counts))
            facts["labels_entropy"] = float(-np.sum(counts / len(joint) * np.log(counts / len(joint))))
        return facts

    def _say_cut(self, bound: _Bound) -> None:
        if not self._problems.failed("validation-cut"):
            why = f"run.val read {bound.why} of its batches and stopped: a list given as batches= is read whole"
            say(f"{why} (reported once; training is not affected)")
            self._problems.notice("validation-cut", why)

    def flush(self) -> None:
        """Hand the newly kept hashes to the store."""
        for split, sample in self._kept.items():
            hashes, steps = sample.take_new().T
            if len(hashes):  # as one batch: row by row they cost more than all other rows together
                times = np.full(len(hashes), time.time())
                self._writer.write("examples", steps.astype(np.int64), times, {f"example_hash/{split}": hashes})

    def _keep(self, split: str, array: HostArray, step: int) -> Values:
        self._kept[split].add(array.astype(np.int64, copy=False), step)
        return {}


class _Bound:
    """Ends the reading of validation batches: a loader may be endless, or slower than the training it serves."""

    def __init__(self) -> None:
        self.why = ""
        self.too_slow = False
        self._batches = self._bytes = 0
        self._began = time.monotonic()

    def reached(self, arrays: list[Array]) -> bool:
        """Whether this batch is one too many."""
        self._batches += 1
        self._bytes += sum(array.nbytes for array in arrays)
        self.too_slow = time.monotonic() - self._began > _MOST_SECONDS
        if self._batches > _MOST_BATCHES:
            self.why = f"{_MOST_BATCHES:,}"
        elif self._bytes > _MOST_BYTES:
            self.why = f"{_MOST_BYTES / 2**30:g} GiB"
        elif self.too_slow:
            self.why = f"{_MOST_SECONDS:g} seconds"
        return bool(self.why)


def _parts_of(kept: Packed, several: bool) -> list[list[Array]]:
    """The arrays of a batch that was kept, those of each micro-batch apart."""
    if not several and (arrays := kept.arrays) is not None:
        return [arrays]
    parts: dict[str, list[Array]] = {}
    for name, tensor in kept.tensors.items():
        if (array := from_tensor(tensor)) is not None:
            parts.setdefault(name.split(".")[0] if several else "", []).append(array)
    return list(parts.values())


def _batches(batches: Any) -> Generator[object, None, None]:
    """The batches in a list, a loader or one bare batch. Iterating a loader draws random numbers: they are put back."""
    if isinstance(batches, Mapping) or hasattr(batches, "shape") or _is_one_batch(batches):
        yield batches
    elif isinstance(batches, list | tuple):
        yield from batches
    else:
        with untouched_random_states():
            yield from batches


def _is_one_batch(batch: object) -> bool:
    return isinstance(batch, tuple) and bool(batch) and all(hasattr(part, "shape") for part in batch)


def _on_host(values: Array) -> HostArray:
    array: HostArray = values if isinstance(values, np.ndarray) else values.cpu().numpy()
    return array


def _total(counts: list[Any]) -> Any:
    return None if None in counts else sum(counts)
