"""Bounded samples of examples by their hashes, and whether an input that comes again has the target it had before.

Hashes alone show whether validation holds training examples. To keep a sample bounded in a long run, only
hashes divisible by a modulus are kept, and the modulus doubles as the sample fills; the same rule for both sides keeps
the overlap measurable, and the same examples are looked at in each epoch.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from steadyrun.probes.row_queue import HostArray, ProbeRow, Values

_MOST_KEPT = 50_000
_MOST_TARGETS = 20_000
_PER_STEP = 8  # examples of a batch that are looked up: the rest costs time and shows no more


class HashSample:
    """Distinct hashes, thinned by a modulus that doubles."""

    def __init__(self) -> None:
        self._modulus = 1
        self._hashes: set[int] = set()
        self._new: list[tuple[list[int], int]] = []

    def add(self, hashes: npt.NDArray[np.int64], step: int) -> None:
        chosen = hashes if self._modulus == 1 else hashes[hashes % self._modulus == 0]
        fresh = set(chosen.tolist()) - self._hashes
        self._hashes |= fresh
        if fresh:
            self._new.append((sorted(fresh), step))
        while len(self._hashes) > _MOST_KEPT:
            self._modulus *= 2
            self._hashes = {value for value in self._hashes if value % self._modulus == 0}

    def take_new(self) -> npt.NDArray[np.float64]:
        """What was kept since the last call: rows of a hash and its step."""
        taken, self._new = self._new, []
        if not taken:
            return np.empty((0, 2))
        steps = np.repeat([float(step) for _, step in taken], [len(hashes) for hashes, _ in taken])
        return np.column_stack([np.fromiter(chain.from_iterable(hashes for hashes, _ in taken), np.float64), steps])


class TargetMemory:
    """Remembers the target of some inputs, chosen by their hash so that the same ones are looked up in each epoch."""

    def __init__(self) -> None:
        self._modulus = 1
        self._targets: dict[int, int] = {}

    def look(self, inputs: Any, targets: Any, row: ProbeRow) -> None:
        """Put into a row how many inputs came again, and how many of them have another target now."""
        if isinstance(inputs, np.ndarray) and isinstance(targets, np.ndarray):
            row.values.update(self._compare(inputs, targets))
            return
        import torch

        both = [torch.as_tensor(part) for part in (inputs, targets)]
        device = next((part.device for part in both if part.device.type != "cpu"), both[0].device)
        row.put_many(torch.stack([part.to(device) for part in both]), lambda array: self._compare(*_halves(array)))

    def _compare(self, inputs: HostArray, targets: HostArray) -> Values:
        while len(inputs) > _PER_STEP * self._modulus:
            self._modulus *= 2
        if self._modulus > 1:
            chosen = inputs % self._modulus == 0
            inputs, targets = inputs[chosen], targets[chosen]
        pairs = dict(zip(inputs.tolist(), targets.tolist(), strict=True))
        before = [(self._targets[given], target) for given, target in pairs.items() if given in self._targets]
        self._keep(pairs)
        return {"inputs_again": float(len(before)), "targets_changed": float(sum(old != new for old, new in before))}

    def _keep(self, pairs: dict[int, int]) -> None:
        self._targets.update(pairs)
        while len(self._targets) > _MOST_TARGETS:
            self._modulus *= 2
            self._targets = {given: target for given, target in self._targets.items() if given % self._modulus == 0}


def _halves(array: HostArray) -> tuple[HostArray, HostArray]:
    inputs, targets = array.reshape(2, -1)
    return inputs, targets
