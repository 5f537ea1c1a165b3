"""Batches of several ranks, joined to the batch that one process would have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steadyrun.program.containers import leaves, rebuilt


class CannotJoin(Exception):  # noqa: N818  an answer in the making
    """Batches that do not fit together."""


def joined_batch(batches: Sequence[Any]) -> Any:
    """One batch with the examples of all; raises `CannotJoin` if they do not fit together."""
    first = batches[0]
    if any(type(batch) is not type(first) for batch in batches):
        raise CannotJoin(f"they are a {' and a '.join(sorted({type(batch).__name__ for batch in batches}))}")
    if isinstance(first, Tensor):
        return _joined_tensors(batches)
    if isinstance(first, np.ndarray):
        return _joined_tensors([torch.from_numpy(batch) for batch in batches]).numpy()
    if isinstance(first, Mapping):
        return _joined_mappings(batches)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(joined_batch(members) for members in zip(*batches, strict=True)))
    if isinstance(first, list | tuple):
        return _joined_lists(batches)
    if all(batch == first for batch in batches):
        return first
    raise CannotJoin(f"a {type(first).__name__} differs between the ranks")


def on_host(batch: Any) -> Any:
    """The batch with its tensors on the CPU, for another rank."""
    return rebuilt(batch, lambda leaf: leaf.detach().cpu() if isinstance(leaf, Tensor) else leaf)


def on_device_of(like: Any, batch: Any) -> Any:
    """The batch on the device of this rank's own batch."""
    device = next((leaf.device for leaf in leaves(like) if isinstance(leaf, Tensor)), torch.device("cpu"))
    return rebuilt(batch, lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf)


def _joined_tensors(tensors: Sequence[Tensor]) -> Tensor:
    if not tensors[0].dim():
        if all(torch.equal(tensor, tensors[0]) for tensor in tensors):
            return tensors[0]
        raise CannotJoin("a number in the batch differs between the ranks")
    if len({tensor.shape[1:] for tensor in tensors}) > 1:
        shapes = " and ".join(str(tuple(tensor.shape)) for tensor in tensors[:2])
        raise CannotJoin(f"tensors have shapes {shapes}")
    return torch.cat(list(tensors))


def _joined_mappings(batches: Sequence[Mapping[Any, Any]]) -> Any:
    if any(batch.keys() != batches[0].keys() for batch in batches):
        raise CannotJoin("they have different keys")
    members = {key: joined_batch([batch[key] for batch in batches]) for key in batches[0]}
    return members if type(batches[0]) is dict else type(batches[0])(members)  # type: ignore[call-arg]


def _joined_lists(batches: Sequence[Sequence[Any]]) -> Any:
    """A structure of arrays is joined by member; a list with an entry for each example is chained."""
    kind: Any = type(batches[0])
    if all(isinstance(member, Tensor | np.ndarray | Mapping | list | tuple) for batch in batches for member in batch):
        if len({len(batch) for batch in batches}) > 1:
            raise CannotJoin("they have different lengths")
        return kind(joined_batch(members) for members in zip(*batches, strict=True))
    return kind(member for batch in batches for member in batch)
