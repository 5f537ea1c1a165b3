"""The fewest examples of a batch that still show a failure, found by halving."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from steadyrun.program.containers import leaves, rebuilt

Fails = Callable[[Any], bool]


def smallest(batch: Any, fails: Fails) -> tuple[Any, tuple[int, int]]:
    """A batch with as few rows as halving finds, and how many of how many they are.

    A batch whose tensors have no common first dimension, or that fails in no half, stays whole.
    """
    total = row_count(batch)
    if total is None:
        return batch, (1, 1)
    keep = list(range(total))
    while len(keep) > 1:
        middle = len(keep) // 2
        half = next((part for part in (keep[:middle], keep[middle:]) if _fails(fails, rows_of(batch, part))), None)
        if half is None:
            break
        keep = half
    return (batch if len(keep) == total else rows_of(batch, keep)), (len(keep), total)


def _fails(fails: Fails, batch: Any) -> bool:
    try:
        return fails(batch)
    except Exception:  # a model may refuse a part of a batch, such as a normalisation that needs two rows
        return False


def row_count(batch: Any) -> int | None:
    """The first dimension that all tensors of one batch share; None where there is no such thing."""
    sizes = {tensor.shape[0] if tensor.dim() else None for tensor in _tensors(batch)}
    return sizes.pop() if len(sizes) == 1 else None


def _tensors(batch: Any) -> list[Tensor]:
    return [leaf for leaf in leaves(batch) if isinstance(leaf, Tensor)]


def rows_of(batch: Any, rows: list[int]) -> Any:
    """A batch with these rows alone."""
    return rebuilt(batch, lambda leaf: leaf[rows] if isinstance(leaf, Tensor) else leaf)
