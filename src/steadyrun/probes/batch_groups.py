"""What was in many batches of one shape, looked at together: a fifth of what it costs to look at them one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steadyrun.probes import batch_hashes as single
from steadyrun.probes.row_queue import HostArray, Values


@dataclass(frozen=True)
class BatchFacts:
    """The numbers of one batch, the hashes of its examples, and those of their inputs and targets apart."""

    values: Values
    examples: HostArray
    apart: tuple[HostArray, HostArray] | None


Shape = tuple[tuple[tuple[int, ...], str], ...]


def shape_of(arrays: Sequence[HostArray], pad_id: int | None = None) -> Shape | None:
    """What batches must have in common to be looked at together; None for one that is looked at by itself.

    Where `pad_id` is known, tokens may be padded to any length: no fact of a batch depends on it.
    """
    if not arrays or arrays[0].ndim == 0 or arrays[0].shape[0] < 2 or not all(array.size for array in arrays):
        return None
    return tuple(
        ((array.shape[0], -1) if pad_id is not None and _is_tokens(array) else array.shape, array.dtype.str)
        for array in arrays
    )


def _is_tokens(array: HostArray) -> bool:
    return array.ndim == 2 and _is_integer(array) and 1 < array.shape[1] <= single.SAMPLED_ELEMENTS


def _stacked(arrays: Sequence[HostArray], pad_id: int | None) -> HostArray:
    longest = max(array.shape[-1] for array in arrays)
    if pad_id is None or all(array.shape[-1] == longest for array in arrays):
        return np.stack(arrays)
    stack = np.full((len(arrays), len(arrays[0]), longest), pad_id, arrays[0].dtype)
    for index, array in enumerate(arrays):
        stack[index, :, : array.shape[1]] = array
    return stack


def facts_of(batches: Sequence[Sequence[HostArray]], pad_id: int | None) -> list[BatchFacts]:
    """The facts of each batch; all are numpy arrays of one `shape_of`."""
    count, rows = len(batches), batches[0][0].shape[0]
    stacks = [_stacked(arrays, pad_id) for arrays in zip(*batches, strict=True)]
    flat = [stack.reshape(-1, *stack.shape[2:]) for stack in stacks]
    summed = single.example_sums(flat, pad_id)
    examples = single.folded([total for _, total in summed]).reshape(count, rows)
    columns: dict[str, HostArray | None] = {
        "examples": np.full(count, float(rows)),
        **_tokens(stacks, pad_id),
        "ignored_labels": _ignored(stacks, batches),
        "batch_nonfinite": _nonfinite(stacks),
        "label_hash": _labels(stacks),
        "batch_hash": _hashes(examples),
    }
    pair = single.inputs_and_targets(summed)
    apart = None if pair is None else [half.reshape(count, rows) for half in pair]
    if apart is not None:
        columns["target_hash"] = _hashes(apart[1])
    given = {name: column.astype(float).tolist() for name, column in columns.items() if column is not None}
    return [
        BatchFacts(
            {name: column[i] for name, column in given.items() if not math.isnan(column[i])},
            examples[i],
            None if apart is None else (apart[0][i], apart[1][i]),
        )
        for i in range(count)
    ]


def _hashes(rows: HostArray) -> HostArray:
    together: HostArray = single.folded([(rows * single.weights(0, rows.shape[1], rows)).sum(1)])
    return together


def _is_integer(stack: HostArray) -> bool:
    return stack.dtype.kind in "iu" and stack.dtype.itemsize > 1


def _tokens(stacks: list[HostArray], pad_id: int | None) -> dict[str, HostArray | None]:
    tokens = next((stack for stack in stacks if stack.ndim >= 3 and _is_integer(stack)), None)
    if tokens is None:
        return {}
    within = tuple(range(1, tokens.ndim))
    real = None if pad_id is None else tokens != pad_id
    size = math.prod(tokens.shape[1:])
    count = np.full(len(tokens), float(size)) if real is None else real.sum(within)
    wide = next((s for s in stacks if s.ndim >= 3 and _is_integer(s) and s.shape[-1] > 1), None)
    if wide is None:
        return {"tokens": count}
    within = tuple(range(1, wide.ndim))
    same = wide[..., 1:] == wide[..., :-1]
    after = math.prod(same.shape[1:]) if pad_id is None else (kept := wide[..., 1:] != pad_id).sum(within)
    again = same.sum(within) if pad_id is None else (same & kept).sum(within)
    return {"tokens": count, "repeated_tokens": again / np.maximum(1, after)}


def _ignored(stacks: list[HostArray], batches: Sequence[Sequence[HostArray]]) -> HostArray | None:
    last = next((i for i in range(len(stacks) - 1, -1, -1) if _is_integer(stacks[i]) and stacks[i].ndim > 1), None)
    if last is None:
        return None
    skipped = (stacks[last] == single.IGNORED_LABEL).sum(tuple(range(1, stacks[last].ndim)))
    return np.where(skipped > 0, skipped / np.array([batch[last].size for batch in batches]), np.nan)


def _nonfinite(stacks: list[HostArray]) -> HostArray | None:
    floats = [stack.reshape(len(stack), -1) for stack in stacks if stack.dtype.kind == "f"]
    if not floats:
        return None
    size = sum(stack.shape[1] for stack in floats)
    with np.errstate(all="ignore"):  # a sum that is finite has finite terms: one quick pass for nearly every batch
        if all(np.isfinite(stack.sum(1)).all() for stack in floats):
            return np.zeros(len(floats[0]))
    share: HostArray = sum(stack.shape[1] - np.isfinite(stack).sum(1) for stack in floats) / size
    return share


def _labels(stacks: list[HostArray]) -> HostArray | None:
    classes = next((stack for stack in reversed(stacks) if stack.ndim == 2 and single.is_classes(stack[0])), None)
    return None if classes is None else _hashes(classes.astype(np.int64))
