"""Batch hashes per step, and a bounded sample of example hashes from training and validation.

Whether validation holds training examples can be told from hashes alone. To keep the sample bounded in a
long run, only hashes divisible by a modulus are kept, and the modulus doubles as the sample fills; the same
rule for both sides keeps the overlap measurable.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from steadyrun.probes.batches import batch_hash, count_tokens, example_hashes, tensors_of
from steadyrun.probes.pending import Row, Values
from steadyrun.store.writer import RunWriter

_MOST_KEPT = 50_000


class ExampleProbe:
    """Looks at the batches handed to `run.step` and `run.val`."""

    def __init__(self, writer: RunWriter, pad_id: int | None) -> None:
        self._writer = writer
        self._pad_id = pad_id if isinstance(pad_id, int) else None
        self._kept = {"train": _Sample(), "val": _Sample()}

    def training(self, batch: Any, row: Row) -> None:
        """Put the hash and the sizes of a step's batch into its row."""
        if isinstance(batch, list | tuple) and batch and all(_is_batch(part) for part in batch):
            hashes = [found for part in batch if (found := example_hashes(part, self._pad_id)) is not None]
        else:
            hashes = [found for found in [example_hashes(batch, self._pad_id)] if found is not None]
        if not hashes:
            return
        examples = hashes[0] if len(hashes) == 1 else _joined(hashes)
        row.put("examples", float(examples.numel()))
        row.put("tokens", count_tokens(batch, self._pad_id))
        row.put("batch_hash", batch_hash(examples))
        row.put_many(examples, lambda array: self._keep("train", array, row.step))

    def validation(self, batches: Any, step: int) -> None:
        """Keep the example hashes of the validation batches, once per distinct example."""
        found = batches if isinstance(batches, list | tuple) else list(batches)
        for batch in found:
            hashes = example_hashes(batch, self._pad_id)
            if hashes is not None:
                self._keep("val", hashes.cpu().numpy(), step)

    def flush(self) -> None:
        """Hand the newly kept hashes to the store."""
        for split, sample in self._kept.items():
            for value, step in sample.take_new():
                self._writer.append("examples", step, {f"example_hash/{split}": value}, time.time())

    def _keep(self, split: str, array: npt.NDArray[Any], step: int) -> Values:
        self._kept[split].add(array.astype(np.int64), step)
        return {}


class _Sample:
    """Distinct hashes, thinned by a modulus that doubles."""

    def __init__(self) -> None:
        self._modulus = 1
        self._seen: set[int] = set()
        self._new: list[tuple[float, int]] = []

    def add(self, hashes: npt.NDArray[np.int64], step: int) -> None:
        fresh = set(hashes[hashes % self._modulus == 0].tolist()) - self._seen
        self._seen |= fresh
        self._new += [(float(value), step) for value in sorted(fresh)]
        if len(self._seen) > _MOST_KEPT:
            self._modulus *= 2
            self._seen = {value for value in self._seen if value % self._modulus == 0}

    def take_new(self) -> list[tuple[float, int]]:
        taken, self._new = self._new, []
        return taken


def _is_batch(part: Any) -> bool:
    """Whether `part` is a micro-batch of its own (a tuple, list or mapping) rather than one tensor of a batch."""
    return not hasattr(part, "shape") and next(tensors_of(part), None) is not None


def _joined(hashes: list[Any]) -> Any:
    import torch

    return torch.cat([part.to(hashes[0].device) for part in hashes])
