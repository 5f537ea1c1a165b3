"""Whether a tensor is finite, and its range, for every dtype and layout; never raises."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from enum import IntFlag
from typing import Any, Literal

import torch
from torch import Tensor

from steadyrun.replay.hunt.culprit import Range

Key = tuple[str, int]

_MOST_ELEMENTS = 2**24


class Bad(IntFlag):
    """The kinds of non-finite values in a tensor."""

    NONE = 0
    NAN = 1
    UP = 2
    DOWN = 4
    INF = 6


def bad_values(tensor: Any) -> Bad:
    """The non-finite values of a tensor; none if it has no floating-point values, or none that can be read."""
    bad = Bad.NONE
    try:
        for part in _parts(_plain(tensor)):
            bad |= _bad_part(part)
    except Exception:  # a fake tensor, a layout or dtype that torch cannot compare on this device
        return bad
    return bad


def worst(bad: Bad) -> Literal["nan", "inf", "-inf"]:
    """The worst of several values, to show."""
    if bad & Bad.NAN:
        return "nan"
    return "inf" if bad & Bad.UP else "-inf"


def bad_number(value: float) -> Bad:
    """The same for a Python number."""
    if math.isnan(value):
        return Bad.NAN
    return Bad.NONE if math.isfinite(value) else (Bad.UP if value > 0 else Bad.DOWN)


def storage_key(tensor: Tensor) -> Key | None:
    """A key that two tensors share if they share memory; None if there is no memory."""
    try:
        stored = _stored(tensor)
        address = stored.untyped_storage().data_ptr()
        return (str(stored.device), address) if address else None
    except Exception:  # a tensor without storage
        return None


def fills_storage(tensor: Tensor) -> bool:
    """Whether a tensor covers all of its memory, so that the former content is gone."""
    try:
        stored = _stored(tensor)
        return stored.numel() * stored.element_size() >= stored.untyped_storage().nbytes()
    except Exception:
        return False


def measure(name: str, value: Any) -> Range:
    """The range of one input; None if it cannot be measured."""
    if isinstance(value, int | float):
        finite = float(value) if math.isfinite(value) else None
        return Range(name, "number", (), finite, finite, float(finite is None), float(value == 0))
    ends, nonfinite, zeros = [], 0, 0
    try:
        for part in _parts(_plain(value) if floating(value) else value.double()):
            zeros += part.numel() - int(torch.count_nonzero(part))
            low, high = _ends(part)
            if not math.isfinite(low) or not math.isfinite(high):
                finite_part = part[torch.isfinite(part)]
                nonfinite += part.numel() - finite_part.numel()
                low, high = _ends(finite_part) if finite_part.numel() else (math.nan, math.nan)
            ends += [end for end in (low, high) if math.isfinite(end)]
    except Exception:
        ends = []
    count = max(value.numel(), 1)
    span = min(ends, default=None), max(ends, default=None)
    return Range(name, dtype_name(value.dtype), tuple(value.shape), *span, nonfinite / count, zeros / count)


def dtype_name(dtype: torch.dtype) -> str:
    """A dtype without the prefix `torch.`."""
    return str(dtype).removeprefix("torch.")


def floating(value: Any) -> bool:
    """Whether something is a tensor that can hold a NaN."""
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def tensors_in(batch: Any, name: str = "", depth: int = 4) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a batch with their names: `images`, `0`, `1.mask`."""
    if isinstance(batch, Tensor):
        yield name, batch
    elif depth:
        for key, item in _items(batch):
            yield from tensors_in(item, f"{name}.{key}" if name else str(key), depth - 1)


def _items(container: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(container, Mapping):
        yield from container.items()
    elif isinstance(container, tuple) and hasattr(container, "_fields"):
        yield from zip(container._fields, container, strict=True)
    elif isinstance(container, list | tuple):
        yield from enumerate(container)
    elif is_dataclass(container) or type(container).__module__ != "builtins":
        yield from getattr(container, "__dict__", {}).items()


def _stored(tensor: Tensor) -> Tensor:
    """The dense tensor that holds the values."""
    if tensor.layout is torch.sparse_coo:
        return tensor._values()
    return tensor if tensor.layout is torch.strided else tensor.values()


def _plain(tensor: Any) -> Tensor | None:
    """The values as a dense real tensor of a dtype that torch can compare; None if they cannot be NaN."""
    if not floating(tensor):
        return None
    values = _stored(tensor.detach())
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj())
    return values.float() if values.dtype.itemsize == 1 else values


def _parts(values: Tensor | None) -> Iterator[Tensor]:
    """A large tensor in parts along its first dimension, to save memory."""
    if values is None or not values.numel():
        return
    if values.numel() <= _MOST_ELEMENTS or values.dim() == 0:
        yield values
    else:
        yield from torch.split(values, max(1, len(values) * _MOST_ELEMENTS // values.numel()))


def _ends(values: Tensor) -> tuple[float, float]:
    """Minimum and maximum in a single pass without extra memory; both NaN if the tensor contains NaN."""
    low, high = torch.stack(torch.aminmax(values)).tolist()
    return low, high


def _bad_part(values: Tensor) -> Bad:
    if all(map(math.isfinite, _ends(values))):
        return Bad.NONE
    bad = Bad.NAN if bool(torch.isnan(values).any()) else Bad.NONE
    bad |= Bad.UP if bool(torch.isposinf(values).any()) else Bad.NONE
    return bad | (Bad.DOWN if bool(torch.isneginf(values).any()) else Bad.NONE)
