"""Batch hashes per step, and a bounded sample of example hashes from training and validation.

Whether validation holds training examples can be told from hashes alone. To keep the sample bounded in a
long run, only hashes divisible by a modulus are kept, and the modulus doubles as the sample fills; the same
rule for both sides keeps the overlap measurable.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from steadyrun.probes.batch_hashes import (
    arrays_of,
    batch_hash,
    count_tokens,
    example_hashes,
    ignored_labels,
    label_hash,
    repeated_tokens,
)
from steadyrun.probes.problems import Problems, say
from steadyrun.probes.row_queue import HostArray, ProbeRow, Values
from steadyrun.probes.scalars import untouched_random_states
from steadyrun.store.writer import RunWriter

if TYPE_CHECKING:
    from steadyrun.probes.batch_hashes import Array

_MOST_KEPT = 50_000
_SMALL_BYTES = 16_384
_MOST_BATCHES, _MOST_BYTES, _MOST_SECONDS = 10_000, 8 * 2**30, 60.0  # that are read of one validation


class ExampleProbe:
    """Looks at the batches handed to `run.step` and `run.val`."""

    def __init__(self, writer: RunWriter, pad_id: int | None, problems: Problems) -> None:
        self._writer = writer
        self._problems = problems
        self._pad_id = pad_id if isinstance(pad_id, int) else None
        self._kept = {"train": _Sample(), "val": _Sample()}

    def training(self, batch: Any, row: ProbeRow) -> None:
        """Put the hash and the sizes of a step's batch into its row; a list of micro-batches counts as one."""
        parts = [arrays_of(part) for part in (batch if is_list_of_batches(batch) else [batch])]
        arrays = [array for part in parts for array in part]
        if any(not isinstance(array, np.ndarray) or array.nbytes > _SMALL_BYTES for array in arrays):
            self._describe(parts, row)
            return
        # Looked at later; the training loop may reuse its buffers, so it is a copy that waits.
        copies = [[array.copy() for array in part] for part in parts]
        row.work.append(lambda _values: self._describe(copies, row))

    def _describe(self, parts: list[list[Array]], row: ProbeRow) -> None:
        per_part = [hashes for part in parts if (hashes := example_hashes(part, self._pad_id)) is not None]
        if not per_part:
            self._problems.unavailable("batch hash", "no tensors or arrays were found in the batch given to run.step")
            return
        examples = per_part[0] if len(per_part) == 1 else joined(per_part)
        row.put("examples", float(examples.shape[0]))
        row.put("tokens", _total([count_tokens(part, self._pad_id) for part in parts]))
        row.put("repeated_tokens", repeated_tokens(parts[0], self._pad_id))
        row.put("ignored_labels", ignored_labels(parts[0]))
        labels = label_hash(parts[0])
        row.put("label_hash", float(labels) if isinstance(labels, np.generic) else labels)
        if isinstance(examples, np.ndarray):
            row.put("batch_hash", float(batch_hash(examples)))
            self._keep("train", examples, row.step)
        else:
            row.put("batch_hash", batch_hash(examples))
            row.put_many(examples, lambda array: self._keep("train", array, row.step))

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
            facts["labels_hash"], facts["classes"] = float(batch_hash(joint)), float(len(np.unique(joint)))
        return facts

    def _say_cut(self, bound: _Bound) -> None:
        if not self._problems.failed("validation-cut"):
            why = f"run.val has read {bound.why} of its batches and no more: give batches= a list of the first ones"
            say(f"{why} (said once; training is not affected)")
            self._problems.notice("validation-cut", why)

    def flush(self) -> None:
        """Hand the newly kept hashes to the store."""
        for split, sample in self._kept.items():
            for value, step in sample.take_new():
                self._writer.append("examples", step, {f"example_hash/{split}": value}, time.time())

    def _keep(self, split: str, array: HostArray, step: int) -> Values:
        self._kept[split].add(array.astype(np.int64), step)
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


class _Sample:
    """Distinct hashes, thinned by a modulus that doubles."""

    def __init__(self) -> None:
        self._modulus = 1
        self._hashes: set[int] = set()
        self._new: list[tuple[float, int]] = []

    def add(self, hashes: npt.NDArray[np.int64], step: int) -> None:
        fresh = set(hashes[hashes % self._modulus == 0].tolist()) - self._hashes
        self._hashes |= fresh
        self._new += [(float(value), step) for value in sorted(fresh)]
        while len(self._hashes) > _MOST_KEPT:
            self._modulus *= 2
            self._hashes = {value for value in self._hashes if value % self._modulus == 0}

    def take_new(self) -> list[tuple[float, int]]:
        taken, self._new = self._new, []
        return taken


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


def is_list_of_batches(batch: object) -> bool:
    """Whether this is a list of micro-batches (tuples, lists, mappings) rather than one batch of tensors."""
    return isinstance(batch, list | tuple) and bool(batch) and all(isinstance(p, list | tuple | dict) for p in batch)


def _on_host(values: Array) -> HostArray:
    array: HostArray = values if isinstance(values, np.ndarray) else values.cpu().numpy()
    return array


def joined(hashes: list[Array]) -> Array:
    if all(isinstance(part, np.ndarray) for part in hashes):
        return np.concatenate(hashes)
    import torch

    return torch.cat([torch.as_tensor(part) for part in hashes])


def _total(counts: list[Any]) -> Any:
    return None if None in counts else sum(counts)
