"""Plain containers of tensors as a tree of JSON and a table of tensors, and back. No pickle anywhere.

Dicts, lists, tuples, named tuples, other mappings, dataclasses, tensors, arrays, numbers and strings are kept; a
dataclass comes back as an object with the same attributes, another mapping as a dict that has them, too. What is none
of these is left out, and named.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steadyrun.errors import RunDirectoryError

_PLAIN = (bool, int, str, type(None))
_DEEPEST = 50


class AttributeDict(dict[str, Any]):
    """A dict whose entries are attributes as well, as `transformers` gives its batches."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass
class Packed:
    """A tree whose leaves are numbers, strings, and names of tensors in `tensors`."""

    tree: Any = None
    tensors: dict[str, Tensor] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    storages: set[int] = field(default_factory=set)  # of the tensors it was made from

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())


def pack(held: Any, *, copy: bool = True) -> Packed:
    """Take `held` apart. With `copy` the tensors are on the CPU, and later changes of the caller's do not reach them.

    A copy from a CUDA device is started and not waited for: call `arrived` before it is read. Without `copy` they are
    the caller's own.
    """
    packed = Packed()
    packed.tree = _taken(held, packed, "", copy, 0)
    return packed


def arrived(packed: Packed) -> None:
    """Wait until every copy from a device is complete."""
    if torch.cuda.is_available() and packed.tensors:
        torch.cuda.synchronize()


def unpack(tree: Any, tensors: Mapping[str, Tensor], device: torch.device | None = None) -> Any:
    """Put a tree together again. Tensors that were on an accelerator go to `device`."""
    try:
        return _rebuilt(tree, tensors, device)
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as problem:
        raise RunDirectoryError(f"the stored structure is damaged: {type(problem).__name__} {problem}") from problem


def _taken(held: Any, packed: Packed, path: str, copy: bool, depth: int) -> Any:
    if isinstance(held, Tensor):
        return _tensor(held, packed, path, copy)
    if isinstance(held, _PLAIN):
        return held if type(held) in _PLAIN else _plain(held)
    if isinstance(held, float):
        return float(held) if np.isfinite(held) else {"float": str(float(held))}
    if isinstance(held, np.ndarray | np.generic):
        return _array(held, packed, path, copy)
    if depth > _DEEPEST:
        return _left_out(held, packed, path)
    return _container(held, packed, path, copy, depth + 1)


def _plain(held: Any) -> Any:
    """An enum of numbers is its number, a subclass of str its text."""
    return str.__str__(held) if isinstance(held, str) else int(held)


def attributes(held: Any) -> dict[str, Any]:
    """What a dataclass holds: it may have slots, and more than its fields."""
    own = {each.name: getattr(held, each.name) for each in fields(held) if hasattr(held, each.name)}
    return own | getattr(held, "__dict__", {})


def _container(held: Any, packed: Packed, path: str, copy: bool, depth: int) -> Any:
    if isinstance(held, Mapping) or (is_dataclass(held) and not isinstance(held, type)):
        kind = "dict" if isinstance(held, dict) else "mapping" if isinstance(held, Mapping) else "object"
        pairs = held.items() if isinstance(held, Mapping) else attributes(held).items()
        return {
            kind: [
                [
                    key if type(key) is str else _taken(key, packed, path, copy, depth),
                    _taken(item, packed, f"{path}.{key}", copy, depth),
                ]
                for key, item in pairs
            ]
        }
    if not isinstance(held, list | tuple | set | frozenset):
        return _left_out(held, packed, path)
    items = [_taken(item, packed, f"{path}.{place}", copy, depth) for place, item in enumerate(held)]
    if isinstance(held, tuple) and hasattr(held, "_fields"):
        return {"named": [type(held).__name__, list(held._fields), items]}
    return {"tuple" if isinstance(held, tuple) else "list": items}


def _tensor(held: Tensor, packed: Packed, path: str, copy: bool) -> Any:
    unusual = held.is_nested or held.is_quantized or held.is_meta or hasattr(held, "full_tensor")
    if held.layout != torch.strided or unusual:
        return _left_out(held, packed, path)
    name = _free(packed, path)
    packed.storages.add(held.untyped_storage().data_ptr())
    values, kind = held.detach(), "tensor"
    if values.is_complex():
        values, kind = torch.view_as_real(values.resolve_conj()), "complex"
    if values.device.type != "cpu":
        cuda = values.device.type == "cuda"
        packed.tensors[name] = values.contiguous().to("cpu", non_blocking=cuda) if copy else values
        return {kind: name, "device": values.device.type}
    packed.tensors[name] = values.clone(memory_format=torch.contiguous_format) if copy else values
    return {kind: name, **_layout(values)}


def _layout(values: Tensor) -> dict[str, Any]:
    """How a tensor lies in memory, if not like a new one of torch: some kernels choose the order of a sum by it."""
    offset, strides = values.data_ptr() % 64, list(values.stride())
    dense = values.is_contiguous() or list(torch.empty_like(values, device="meta").stride()) == strides
    if not dense or (offset == 0 and values.is_contiguous()):
        return {}
    return {"layout": [offset, strides]}


def laid_out(tensor: torch.Tensor, offset: int, strides: list[int]) -> torch.Tensor:
    """A copy with these strides, `offset` bytes behind an address that is a multiple of 64."""
    size = tensor.element_size()
    room = torch.empty(tensor.numel() + 64 // size, dtype=tensor.dtype)
    first = (offset - room.data_ptr()) % 64 // size
    return room.as_strided(tensor.shape, strides, first).copy_(tensor)


def _array(held: Any, packed: Packed, path: str, copy: bool) -> Any:
    if isinstance(held, np.generic):
        return _taken(held.item(), packed, path, copy, 0)
    try:
        native = held.dtype.newbyteorder("=")  # torch takes no other
        tensor = torch.from_numpy(held.astype(native, copy=True))
    except (TypeError, ValueError):
        return _left_out(held, packed, path)
    name = _free(packed, path)
    packed.tensors[name] = tensor
    return {"array": name}


def _left_out(held: Any, packed: Packed, path: str) -> Any:
    what = type(held).__name__
    packed.lost.append(f"{path.lstrip('.') or 'the batch'} ({what})")
    return {"lost": what}


def _free(packed: Packed, path: str) -> str:
    name = path.lstrip(".") or "value"
    while name in packed.tensors:
        name += "'"
    return name


def _rebuilt(tree: Any, tensors: Mapping[str, Tensor], device: torch.device | None) -> Any:
    if not isinstance(tree, dict):
        return tree
    kind = next(iter(tree), "")
    held: Any = tree.get(kind)

    def back(item: Any) -> Any:
        return _rebuilt(item, tensors, device)

    if kind in {"tensor", "complex", "array"}:
        return _leaf(tree, tensors[held], device if "device" in tree else None)
    if kind in {"dict", "mapping", "object"}:
        entries = {back(key): back(item) for key, item in held}
        return (
            entries if kind == "dict" else AttributeDict(entries) if kind == "mapping" else SimpleNamespace(**entries)
        )
    if kind == "named":
        name, names, items = held
        return namedtuple(str(name), [str(each) for each in names])(*map(back, items))
    if kind in {"list", "tuple"}:
        return [back(item) for item in held] if kind == "list" else tuple(back(item) for item in held)
    if kind == "float":
        return float(held)
    if kind == "lost":
        return None
    raise ValueError(f"unknown kind {kind!r}")


def _leaf(tree: dict[str, Any], tensor: Tensor, device: torch.device | None) -> Any:
    if "array" in tree:
        return tensor.numpy().copy()
    value = laid_out(tensor, *tree["layout"]) if "layout" in tree else tensor.clone()
    value = torch.view_as_complex(value) if "complex" in tree else value
    return value if device is None else value.to(device)
