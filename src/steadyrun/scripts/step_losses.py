"""The loss of a step from the numbers on which its backward passes start."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch import Tensor

from steadyrun.probes.loss_scale import ScalerView
from steadyrun.probes.scalars import scalar
from steadyrun.program.torch_compat import saved

if TYPE_CHECKING:
    from steadyrun.probes.scalars import Scalar


class StepLosses:
    """Collects the roots of a step's backward passes; `take` gives the undivided mean over its micro-batches.

    A script that accumulates gradients divides each loss by the number of micro-batches: such a division is undone
    once a step had as many backward passes as the divisor. Several backward passes on one batch are terms of one
    objective, and are added.
    """

    def __init__(self) -> None:
        self.scaler = ScalerView(None)
        self._roots: list[Scalar | None] = []
        self._divisors: list[float | None] = []
        self._batches: list[Any] = []
        self._accumulation: float | None = None
        self._last: Scalar | None = None

    @property
    def pending(self) -> bool:
        """Whether there was a backward pass since the last optimizer step."""
        return bool(self._roots)

    @property
    def batches(self) -> list[Any]:
        """The batches of this step, one per micro-batch."""
        return self._batches

    def add(self, root: Tensor | None, batch: Any) -> None:
        """Note that a backward pass starts from `root`, after `batch` was the last to be fetched."""
        self._roots.append(None if root is None else self._undone(root))
        self._divisors.append(None if root is None else _divisor(root, scaled=self.scaler.active))
        if batch is not None and all(batch is not known for known in self._batches):
            self._batches.append(batch)

    def give(self, loss: Any) -> None:
        """Replace the root that was noted last by a number that the user named."""
        if self._roots:
            self._roots[-1], self._divisors[-1] = scalar(loss, "loss"), None

    def take(self, *, ends: bool) -> Scalar | None:
        """The loss since the last call, or that of the last call if no backward came since. `ends` ends the step."""
        roots, divisors = self._roots, self._divisors
        self._roots, self._divisors = [], []
        if roots:
            self._last = self._combined([root for root in roots if root is not None], divisors, len(roots))
        loss = self._last
        if ends:
            self._batches, self._last = [], None
        return loss

    def _combined(self, known: list[Scalar], divisors: list[float | None], count: int) -> Any:
        if len(known) < count:
            return None
        divisor = divisors[0] if len(set(divisors)) == 1 else None
        if count > 1 and divisor == count:
            self._accumulation = divisor
        if divisor is not None and divisor == self._accumulation:
            return _sum(known) * divisor / count
        if count == 1:
            return known[0]
        return _sum(known) / (count if len(self._batches) >= count else 1)

    def _undone(self, root: Tensor) -> Scalar:
        value = self.scaler.unscaled(root.detach())
        return scalar(root if value is None else value, "loss")


def _sum(values: list[Scalar]) -> Any:
    total: Any = values[0]
    for value in values[1:]:
        total = total + value
    return total


def _divisor(root: Tensor, *, scaled: bool) -> float | None:
    """The whole number by which the loss was divided last, None if it was not; a division by 1 does not count."""
    node: Any = root.grad_fn
    if scaled and node is not None and node.name().startswith("Mul"):
        node = node.next_functions[0][0]
    factor = _factor(node)
    while factor == 1:  # such as that of a library which accumulates one micro-batch
        node = node.next_functions[0][0]
        factor = _factor(node)
    if factor is None:
        return None
    count = 1 / factor
    return float(round(count)) if count > 1.5 and abs(count - round(count)) < 1e-6 * count else None


def _factor(node: Any) -> float | None:
    """The positive number with which an operation multiplies its first operand, None if it does something else."""
    if node is None:
        return None
    divides = node.name().startswith("Div")
    other = saved(node, "other") if divides or node.name().startswith("Mul") else None
    if isinstance(other, Tensor):
        if other.dim() or other.device.type != "cpu":
            return None
        other = float(other)
    if not isinstance(other, int | float) or not 0 < other < math.inf:
        return None
    return 1 / float(other) if divides else float(other)
