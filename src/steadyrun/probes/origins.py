"""Whether queries and keys come from the same tensor: self-attention, told by the autograd graph of a forward pass."""

from __future__ import annotations

from typing import Any

from torch import Tensor

_FAR = 60  # nodes between a query and its projection: rotations, norms, casts and views are a dozen
_PROJECTIONS = ("Addmm", "Mm", "Bmm", "Baddbmm", "Linear", "Convolution")
VIEWS = ("View", "UnsafeView", "Reshape", "ToCopy", "Transpose", "Permute", "Clone", "Expand", "Unsqueeze", "Squeeze",
          "Alias", "Contiguous", "TBackward")  # fmt: skip


def same_source(query: Tensor, key: Tensor) -> bool:
    """Whether both are projections of one tensor; False where the graph does not tell."""
    return _same(query.grad_fn, key.grad_fn)


def scores_of_one_source(scores: Tensor) -> bool:
    """The same of the scores of an attention written out by hand: a product of queries and keys."""
    node = _down_to(scores.grad_fn, ("Bmm", "Baddbmm"))
    factors = [] if node is None else [each for each, _ in node.next_functions if each is not None]
    return len(factors) >= 2 and _same(factors[-2], factors[-1])


def _same(query: Any, key: Any) -> bool:
    ours, theirs = _source(query), _source(key)
    return ours is not None and ours is theirs


def _source(node: Any) -> Any:
    """What made the tensor that a projection took: the first node before it that is more than another view."""
    node = _down_to(node, _PROJECTIONS)
    inputs = [] if node is None else [each for each, _ in node.next_functions if each is not None]
    node = next((each for each in inputs if not _is_weight(each)), None)
    while node is not None and node.name().startswith(VIEWS):
        node = _next(node)
    return node


def _down_to(node: Any, kinds: tuple[str, ...]) -> Any:
    for _ in range(_FAR):
        if node is None or node.name().startswith(kinds):
            return node
        node = _next(node)
    return None


def _next(node: Any) -> Any:
    """Where a tensor came from; factors and offsets that are parameters are passed by."""
    inputs = [each for each, _ in node.next_functions if each is not None]
    return next((each for each in inputs if not _is_weight(each)), None)


def _is_weight(node: Any) -> bool:
    """A parameter, turned or cast."""
    for _ in range(4):
        if node is None or "AccumulateGrad" in node.name():
            return node is not None
        if not node.name().startswith(VIEWS):
            return False
        node = next((each for each, _ in node.next_functions if each is not None), None)
    return False
