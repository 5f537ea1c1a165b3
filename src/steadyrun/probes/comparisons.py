"""How well predictions fit their targets, and how well a constant would: for any loss that compares numbers.

Predictions and targets are read off the graph of the loss, where torch's own losses keep them. A square or an absolute
value written by hand keeps the difference alone: with the model's output it gives the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from steadyrun.program.torch_compat import saved

_KINDS = {
    "MseLoss": "squared",
    "SmoothL1Loss": "absolute",
    "HuberLoss": "absolute",
    "L1Loss": "absolute",
    "BinaryCrossEntropyWithLogits": "logits",
    "BinaryCrossEntropy": "binary",
}
_BY_HAND = {"Pow": "squared", "Abs": "absolute"}
_MOST_ELEMENTS = 2**20
_MOST = 4  # comparisons in one loss that are followed


@dataclass(frozen=True)
class Compared:
    """Predictions and the targets they are compared with."""

    kind: str  # squared, absolute, binary (probabilities) or logits
    predictions: Tensor
    targets: Tensor


def compared(node: Any, outputs: Iterable[Tensor]) -> Compared | None:
    """What a node of the graph compares; None if it compares nothing."""
    name = node.name()
    for start, kind in _KINDS.items():
        if name.startswith(start):
            return _of_saved(kind, saved(node, "self"), saved(node, "target"))
    for start, kind in _BY_HAND.items():
        if name.startswith(start):
            return _by_hand(kind, node, outputs)
    return None


def _of_saved(kind: str, predictions: object, targets: object) -> Compared | None:
    if not isinstance(predictions, Tensor) or not isinstance(targets, Tensor) or targets.requires_grad:
        return None
    if predictions.shape != targets.shape or predictions.dim() == 0 or predictions.numel() > _MOST_ELEMENTS:
        return None
    return Compared(kind, predictions.detach(), targets.detach())


def _by_hand(kind: str, node: Any, outputs: Iterable[Tensor]) -> Compared | None:
    """A square or absolute value of (output - target), or of (target - output)."""
    difference = saved(node, "self")
    below = node.next_functions[0][0] if node.next_functions else None
    if not isinstance(difference, Tensor) or below is None or not below.name().startswith(("Sub", "Rsub")):
        return None
    if kind == "squared" and saved(node, "exponent") != 2:
        return None
    sources = [source for source, _ in below.next_functions]
    if sum(source is not None for source in sources) != 1:  # both sides are learned: nothing here is a target
        return None
    for output in outputs:
        if output.grad_fn in sources and output.shape == difference.shape:
            sign = 1 if sources[0] is output.grad_fn else -1
            return _of_saved(kind, output, (output - sign * difference).detach())
    return None


_LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "squared": functional.mse_loss,
    "absolute": functional.l1_loss,
    "binary": lambda chances, targets: functional.binary_cross_entropy(chances.clamp(0, 1), targets.clamp(0, 1)),
    "logits": functional.binary_cross_entropy_with_logits,
}


class FitProbe:
    """Measures predictions against the mean of all targets that were sampled so far."""

    def __init__(self) -> None:
        self._means: dict[str, tuple[Tensor, int]] = {}

    def measure(self, found: list[Compared]) -> dict[str, Tensor]:
        """By comparison: its loss, and that of the best constant so far."""
        fits: dict[str, Tensor] = {}
        for one in found[:_MOST]:
            number = 1 + sum(name.partition("#")[0] == one.kind for name in fits)
            name = one.kind if number == 1 else f"{one.kind}#{number}"
            targets, loss = one.targets.float(), _LOSSES[one.kind]
            constant = self._constant(name, targets).expand_as(targets)
            guess = _LOSSES["binary" if one.kind == "logits" else one.kind](constant, targets)
            fits[name] = torch.stack([loss(one.predictions.float(), targets), guess])
        return fits

    def _constant(self, name: str, targets: Tensor) -> Tensor:
        """The mean target at each position; one for all positions if examples change their shape."""
        mean, seen = self._means.get(name, (targets.mean(0), 0))
        batch = targets.mean(0) if mean.shape == targets.shape[1:] else targets.mean()
        mean = mean if mean.shape == batch.shape else mean.mean()
        count = targets.shape[0]
        mean = mean + (batch - mean) * (count / (seen + count))
        self._means[name] = (mean, seen + count)
        return mean
