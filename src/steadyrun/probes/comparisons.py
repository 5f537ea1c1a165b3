"""What a loss compares: predictions and targets, read off its graph.

torch's own losses keep both. A square or an absolute value written by hand keeps the difference alone: with the model's
output it gives the target.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from steadyrun.probes.output_bounds import Bounds
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
MOST_COMPARED = 2**20


@dataclass(frozen=True)
class Compared:
    """Predictions and the targets they are compared with."""

    kind: str  # squared, absolute, binary (probabilities) or logits
    predictions: Tensor
    targets: Tensor
    bounds: Bounds | None = None  # of the predictions, if an operation bounds them
    source: Any = None  # the node that made the predictions, while the graph is read
    positive_weight: Tensor | None = None  # how much more positive targets count, if it was given
    weight: list[Tensor] = field(
        default_factory=list
    )  # how much it counts in the loss, and its negative part; filled by backward


def compared(node: Any, outputs: Iterable[Tensor]) -> Compared | None:
    """What a node of the graph compares; None if it compares nothing."""
    name = node.name()
    for start, kind in _KINDS.items():
        if name.startswith(start):
            found = _of_saved(kind, saved(node, "self"), saved(node, "target"))
            source = node.next_functions[0][0] if node.next_functions else None
            if found is None:
                return None
            given = saved(node, "pos_weight")
            positive = given.detach() if isinstance(given, Tensor) else None
            return replace(found, source=source, positive_weight=positive)
    for start, kind in _BY_HAND.items():
        if name.startswith(start):
            return _by_hand(kind, node, outputs)
    return None


def _of_saved(kind: str, predictions: object, targets: object) -> Compared | None:
    if not isinstance(predictions, Tensor) or not isinstance(targets, Tensor) or targets.requires_grad:
        return None
    if predictions.shape != targets.shape or predictions.dim() == 0 or predictions.numel() > MOST_COMPARED:
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
            found = _of_saved(kind, output, (output - sign * difference).detach())
            return None if found is None else replace(found, source=output.grad_fn)
    return None
