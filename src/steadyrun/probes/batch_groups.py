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


def shape_of(arrays: Sequence[HostArray]) -> Shape | None:
    """What batches must have in common to be looked at together; None for one that is looked at by itself."""
    if not arrays or arrays[0].ndim == 0 or arrays[0].shape[0] < 2 or not all(array.size for array in arrays):
        return None
    return tuple((array.shape, array.dtype.str) for array in arrays)


def facts_of(batches: Sequence[Sequence[HostArray]], pad_id: int | None) -> list[BatchFacts]:
    """The facts of each batch; all are numpy arrays of one `shape_of`."""
    count, rows = len(batches), batches[0][0].shape[0]
    stacks = [np.stack(arrays) for arrays in zip(*batches, strict=True)]
    flat = [stack.reshape(-1, *stack.shape[2:]) for stack in stacks]
    summed = single.example_sums(flat, pad_id)
    examples = single.folded([total for _, total in summed]).reshape(count, rows)
    columns: dict[str, HostArray | None] = {
        "examples": np.full(count, float(rows)),
        **_tokens(stacks, pad_id),
        "ignored_labels": _ignored(stacks),
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


def _ignored(stacks: list[HostArray]) -> HostArray | None:
    labels = next((stack for stack in reversed(stacks) if _is_integer(stack) and stack.ndim > 1), None)
    if labels is None:
        return None
    share = (labels == single.IGNORED_LABEL).mean(tuple(range(1, labels.ndim)))
    return np.where(share > 0, share, np.nan)


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
