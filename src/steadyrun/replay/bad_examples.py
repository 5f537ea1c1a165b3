"""The examples of a batch that cause an incident, with their dataset index or file if the batch has it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from steadyrun.probes.batch_hashes import is_list_of_batches
from steadyrun.program.containers import leaves, rebuilt
from steadyrun.replay.hunt.culprit import Example
from steadyrun.replay.hunt.finite_range import tensors_in

# The fewest examples of a batch that still reproduce a failure, found by bisection.


Fails = Callable[[Any], bool]


def smallest(batch: Any, fails: Fails) -> tuple[Any, tuple[int, int]]:
    """The smallest failing batch that bisection finds, and how many of how many rows it has.

    A batch stays whole if its tensors have no common first dimension, or if neither half fails.
    """
    total = row_count(batch)
    if total is None:
        return batch, (1, 1)
    keep = list(range(total))
    while len(keep) > 1:
        half_way = len(keep) // 2
        half = next((part for part in (keep[:half_way], keep[half_way:]) if _fails(fails, rows_of(batch, part))), None)
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
    """The first dimension that all tensors of a batch share; None if they differ."""
    sizes = {tensor.shape[0] if tensor.dim() else None for tensor in _tensors(batch)}
    return sizes.pop() if len(sizes) == 1 else None


def _tensors(batch: Any) -> list[Tensor]:
    return [leaf for leaf in leaves(batch) if isinstance(leaf, Tensor)]


def rows_of(batch: Any, rows: list[int]) -> Any:
    """A batch with only these rows."""
    return rebuilt(batch, lambda leaf: leaf[rows] if isinstance(leaf, Tensor) else leaf)


_OF = "dataset|data|sample|example|item|image|img|audio|video|record|source"
_INDEX = re.compile(rf"(({_OF})_?)?(index|indices|idx|idxs|id|ids)")
_FILE = re.compile(rf"(({_OF})_?)?(path|file|file_?name|file_?path|url)s?|({_OF})_?names?")
_MOST = 64  # rows that are tested alone: each takes a whole step
_SHOWN = 5


def not_finite(batch: Any, entry: str, parts: int) -> tuple[Example, ...]:
    """The examples with a non-finite value in the batch's field `entry`; `batch` may be `parts` micro-batches."""
    first, _, rest = entry.partition(".")
    if is_list_of_batches(batch) and first.isdecimal() and int(first) < len(batch):
        index, part = int(first), batch[int(first)]
        if len(batch) != parts:  # a list of examples
            return (_example(part, index, None),) if isinstance(part, Mapping) else ()
        return tuple(_example(part, row, row, index) for row in _bad_rows(part, rest))
    return tuple(_example(batch, row, row) for row in _bad_rows(batch, entry))


def alone(batch: Any, shows: Callable[[Any], bool]) -> tuple[Example, ...]:
    """The examples that reproduce the incident as a batch of their own; none if all do: then it is the whole batch."""
    apart = rows_apart(batch)
    rows = [row for row, part in enumerate(apart) if shows(part)]
    return tuple(_example(batch, row, row) for row in rows) if len(rows) < len(apart) else ()


def rows_apart(batch: Any) -> list[Any]:
    """Each example as a batch of its own; none if the batch cannot be split or is large."""
    total = row_count(batch)
    return [] if total is None or total > _MOST else [rows_of(batch, [row]) for row in range(total)]


def in_words(examples: Sequence[Example]) -> str:
    """`row 3 of the batch`, `rows 3, 5 of the batch`, or each row with its index and file; the first five of many."""
    shown, more = examples[:_SHOWN], f" and {len(examples) - _SHOWN} more" if len(examples) > _SHOWN else ""
    if len(examples) > 1 and all(example == Example(example.row) for example in examples):
        return f"rows {', '.join(str(example.row) for example in shown)}{more} of the batch"
    return ", ".join(map(str, shown)) + more


def _bad_rows(batch: Any, entry: str) -> list[int]:
    """The non-finite rows of a tensor, if its first dimension is that of most tensors: the examples."""
    tensors = dict(tensors_in(batch))
    tensor = tensors.get("" if isinstance(batch, Tensor) else entry)
    sizes = Counter(len(tensor) for tensor in tensors.values() if tensor.dim())
    if tensor is None or not tensor.dim() or len(tensor) != sizes.most_common(1)[0][0]:
        return []
    fine = torch.isfinite(tensor).reshape(len(tensor), -1).all(1)
    return (~fine).nonzero().flatten().tolist()


def _example(batch: Any, row: int, at: int | None, micro_batch: int | None = None) -> Example:
    """`at` is the row's index in the fields of `batch`; None if the fields belong to a single example."""
    index, file = _field(batch, _INDEX, at, int), _field(batch, _FILE, at, str)
    return Example(row, index, file, micro_batch)


def _field(batch: Any, name: re.Pattern[str], at: int | None, kind: type) -> Any:
    """The row's value in a field of that name: a tensor or list with a number or text per example."""
    fields = batch if isinstance(batch, Mapping) else getattr(batch, "_asdict", lambda: _attributes(batch))()
    for key, values in fields.items():
        if not isinstance(key, str) or name.fullmatch(key.lower()) is None:
            continue
        plain = values.tolist() if hasattr(values, "tolist") else values
        value = plain if at is None else _at(plain, at)
        if type(value) is kind:
            return value
    return None


def _at(values: Any, index: int) -> Any:
    return values[index] if isinstance(values, list | tuple) and index < len(values) else None


def _attributes(batch: Any) -> dict[str, Any]:
    """The attributes of a batch object; none for a plain container."""
    return {} if isinstance(batch, list | tuple | Tensor) else getattr(batch, "__dict__", {})
