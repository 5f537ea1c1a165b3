"""Plain containers of tensors as a tree of JSON and a table of tensors, and back. No pickle anywhere.

Dicts, lists, tuples, named tuples, other mappings, dataclasses, tensors, arrays, numbers and strings are kept; a
dataclass comes back as an object with the same attributes, another mapping as a dict that also has them. Anything
else is left out, and named.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steadyrun.errors import RunDirectoryError

_PLAIN = (bool, int, str, type(None))
_USUAL = frozenset(  # kinds of numbers that need no second look
    {torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool}
)
_NUMPYS = _USUAL - {torch.bfloat16}
_Copy = Callable[[Tensor], Tensor]
_FLAT: dict[type, str] = {tuple: "tuple", list: "list", dict: "dict"}
_DEEPEST = 50
_SLAB, _LARGEST, _ALIGNED = 2**22, 2**20, 64  # bytes of a slab, of a copy in it, and between two starts
_TOGETHER = 32  # steps whose copies are moved into a slab together
_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_Layout = tuple[int, tuple[int, ...]]  # address and strides of an original


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
    plain: bool = True  # its tensors are those that lay in lists, tuples and mappings, all of them and as they were

    @property
    def nbytes(self) -> int:
        return sum(self.sizes)

    @property
    def sizes(self) -> list[int]:
        """The bytes of each tensor."""
        return [tensor.nbytes for tensor in self.tensors.values()]

    @property
    def arrays(self) -> list[np.ndarray[Any, Any]] | None:
        """The tensors as numpy, if that takes no work."""
        return None


class _FlatPacked(Packed):
    """A tuple, list or dict of usual tensors. Every step makes one, so its making does little: it clones them.

    Its tree and its tensors are built when they are asked for, and its room moves the clones into a slab, many steps
    together.
    """

    def __init__(self, kind: str, keys: Sequence[Any], clones: Sequence[Tensor], layouts: Sequence[_Layout]) -> None:
        # Tuples of numbers: Python's garbage collector does not visit them again, and looks at what is kept for long.
        self._kind, self._keys, self._layouts = kind, keys, tuple(layouts)
        self._copies: Sequence[Any] = clones  # tensors, or arrays once they are in a slab
        self._sizes = tuple([clone.nbytes for clone in clones])

    def settle(self, room: Room) -> None:
        """Move the clones into a slab."""
        self._copies = tuple(map(room.move, self._copies))

    @property
    def lost(self) -> list[str]:  # type: ignore[override]
        return []

    @property
    def plain(self) -> bool:  # type: ignore[override]
        return True

    @property
    def tensors(self) -> dict[str, Tensor]:  # type: ignore[override]
        return {str(key): torch.from_numpy(array) for key, array in zip(self._keys, self.arrays, strict=True)}

    @property
    def sizes(self) -> list[int]:
        return list(self._sizes)

    @property
    def arrays(self) -> list[np.ndarray[Any, Any]]:
        return [copy.contiguous().numpy() if isinstance(copy, Tensor) else copy for copy in self._copies]

    @property
    def tree(self) -> Any:
        originals = zip(self._keys, self._copies, self._layouts, strict=True)
        parts = [{"tensor": str(key), **_layout(at, copy.shape, strides)} for key, copy, (at, strides) in originals]
        return {
            self._kind: [list(pair) for pair in zip(self._keys, parts, strict=True)] if self._kind == "dict" else parts
        }


class Room:
    """Memory for copies that are kept for long: one after another in large slabs.

    Among the blocks that the training frees in every step, each small copy would keep a large one from being used
    again: a program of half a million parameters grew by 1 MiB a step. A copy into a slab between two steps takes
    three times as long as a clone, whose code the training has just used, so clones are moved many together.
    """

    def __init__(self) -> None:
        self._slab: _Bytes = np.empty(0, np.uint8)
        self._view = self._slab.data
        self._used = 0
        self._clones: list[_FlatPacked] = []

    def take_in(self, packed: _FlatPacked) -> None:
        """Move its clones when some have come together."""
        self._clones.append(packed)
        if len(self._clones) >= _TOGETHER:
            clones, self._clones = self._clones, []
            for each in clones:
                each.settle(self)

    def move(self, clone: Tensor) -> Any:
        """A clone as an array, in a slab unless it is large."""
        try:
            array = clone.numpy()
        except RuntimeError:  # the negative of another tensor, not computed yet
            return clone.resolve_neg().numpy()
        if array.nbytes > _LARGEST:
            return clone
        return self._put(array.tobytes()).view(array.dtype).reshape(array.shape)

    def copy(self, values: Tensor) -> Tensor:
        """A contiguous copy of a dense tensor on the CPU, of whatever kind of numbers."""
        if values.nbytes > _LARGEST:
            return _copied(values)
        plain = values.contiguous().reshape(-1).view(torch.uint8).numpy()
        return torch.from_numpy(self._put(plain.tobytes())).view(values.dtype).view(values.shape)

    def _put(self, content: bytes) -> _Bytes:
        first, size = self._used, len(content)
        if first + size > len(self._slab):
            self._slab, first = np.empty(_SLAB, np.uint8), 0
            self._view = self._slab.data
        self._view[first : first + size] = content
        self._used = first + size + -size % _ALIGNED
        return self._slab[first : first + size]


def pack(structure: Any, *, copy: bool = True, room: Room | None = None) -> Packed:
    """Take `structure` apart. With `copy` the tensors are on the CPU, and the caller's later changes do not reach them.

    A copy from a CUDA device is started and not waited for: call `arrived` before it is read. Without `copy` they are
    the caller's own. Copies that are kept for long are given a `room`.
    """
    if room is not None and (packed := _pack_flat(structure, room)) is not None:
        return packed
    packed = Packed()
    packed.tree = _pack_value(structure, packed, "", None if not copy else _copied if room is None else room.copy, 0)
    return packed


def _pack_flat(structure: Any, room: Room) -> Packed | None:
    """The same for a tuple, list or dict of usual tensors, which nearly every batch is, in every step; None else."""
    kind = _FLAT.get(type(structure))
    if kind is None or (kind == "dict" and not (set(map(type, structure)) <= {str} and _are_names(tuple(structure)))):
        return None
    values = structure.values() if kind == "dict" else structure
    for value in values:
        if type(value) is not Tensor or not value.is_cpu or value.requires_grad or value.dtype not in _NUMPYS:
            return None
    try:
        layouts = [(value.data_ptr(), value.stride()) for value in values]
        clones = [value.clone() for value in values]
    except RuntimeError:  # sparse, nested
        return None
    packed = _FlatPacked(kind, tuple(structure) if kind == "dict" else range(len(clones)), clones, layouts)
    room.take_in(packed)
    return packed


@lru_cache(maxsize=16)
def _are_names(keys: tuple[str, ...]) -> bool:
    return all(key and key[0] != "." for key in keys)


def _copied(values: Tensor) -> Tensor:
    return values.clone(memory_format=torch.contiguous_format)


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


def storages(structure: Any) -> set[int]:
    """The addresses of the memory that the tensors in `structure` lie in."""
    return {tensor.untyped_storage().data_ptr() for tensor in pack(structure, copy=False).tensors.values()}


def _is_usual(value: Any) -> bool:
    """Whether this is one of torch's own dense tensors on the CPU: nearly all are, in every step."""
    return (
        type(value) is Tensor
        and value.is_cpu
        and value.dtype in _USUAL
        and value.layout is torch.strided
        and not value.is_nested
    )


def _pack_value(value: Any, packed: Packed, path: str, copied: _Copy | None, depth: int) -> Any:
    if isinstance(value, Tensor):
        return _tensor(value, packed, path, copied)
    if type(value) in (list, tuple) and depth <= _DEEPEST:  # nearly all of them, in every step
        items = [_pack_value(item, packed, f"{path}.{index}", copied, depth + 1) for index, item in enumerate(value)]
        return {"tuple" if type(value) is tuple else "list": items}
    if type(value) is dict and depth <= _DEEPEST and all(type(key) is str for key in value):
        return {
            "dict": [
                [key, _pack_value(item, packed, f"{path}.{key}", copied, depth + 1)] for key, item in value.items()
            ]
        }
    if isinstance(value, _PLAIN):
        return value if type(value) in _PLAIN else _plain(value)
    if isinstance(value, float):
        return float(value) if np.isfinite(value) else {"float": str(float(value))}
    if isinstance(value, np.ndarray | np.generic):
        return _array(value, packed, path, copied)
    if depth > _DEEPEST:
        return _left_out(value, packed, path)
    return _container(value, packed, path, copied, depth + 1)


def _plain(value: Any) -> Any:
    """An enum of numbers is its number, a subclass of str its text."""
    return str.__str__(value) if isinstance(value, str) else int(value)


def attributes(instance: Any) -> dict[str, Any]:
    """What a dataclass holds: it may have slots, and more than its fields."""
    own = {
        attribute.name: getattr(instance, attribute.name)
        for attribute in fields(instance)
        if hasattr(instance, attribute.name)
    }
    return own | getattr(instance, "__dict__", {})


def _container(container: Any, packed: Packed, path: str, copied: _Copy | None, depth: int) -> Any:
    if isinstance(container, Mapping) or (is_dataclass(container) and not isinstance(container, type)):
        kind = "dict" if isinstance(container, dict) else "mapping" if isinstance(container, Mapping) else "object"
        packed.plain = packed.plain and kind != "object"
        pairs = container.items() if isinstance(container, Mapping) else attributes(container).items()
        return {
            kind: [
                [
                    key if type(key) is str else _pack_value(key, packed, path, copied, depth),
                    _pack_value(item, packed, f"{path}.{key}", copied, depth),
                ]
                for key, item in pairs
            ]
        }
    if not isinstance(container, list | tuple | set | frozenset):
        return _left_out(container, packed, path)
    items = [_pack_value(item, packed, f"{path}.{index}", copied, depth) for index, item in enumerate(container)]
    packed.plain = packed.plain and isinstance(container, list | tuple)
    if isinstance(container, tuple) and hasattr(container, "_fields"):
        return {"named": [type(container).__name__, list(container._fields), items]}
    return {"tuple" if isinstance(container, tuple) else "list": items}


def _tensor(tensor: Tensor, packed: Packed, path: str, copied: _Copy | None) -> Any:
    if _is_usual(tensor):
        name = _free(packed, path)
        values = tensor.detach()
        packed.tensors[name] = copied(values) if copied else values
        return {"tensor": name, **_layout_of(values)}
    unusual = tensor.is_nested or tensor.is_quantized or tensor.is_meta or hasattr(tensor, "full_tensor")
    if tensor.layout != torch.strided or unusual:
        return _left_out(tensor, packed, path)
    name = _free(packed, path)
    values, kind = tensor.detach(), "tensor"
    if values.is_complex():
        values, kind = torch.view_as_real(values.resolve_conj()), "complex"
        packed.plain = False
    if values.device.type != "cpu":
        packed.plain = False  # copies on their way
        cuda = values.device.type == "cuda"
        packed.tensors[name] = values.contiguous().to("cpu", non_blocking=cuda) if copied else values
        return {kind: name, "device": values.device.type}
    packed.tensors[name] = copied(values) if copied else values
    return {kind: name, **_layout_of(values)}


def _layout_of(values: Tensor) -> dict[str, Any]:
    return _layout(values.data_ptr(), values.shape, values.stride())


def _layout(address: int, sizes: Sequence[int], strides: Sequence[int]) -> dict[str, Any]:
    """How a tensor lies in memory, if not like a new one of torch: some kernels choose the order of a sum by it."""
    offset, contiguous = address % 64, _is_contiguous(sizes, strides)
    if contiguous and offset == 0:
        return {}
    return {"layout": [offset, list(strides)]} if contiguous or _is_dense(sizes, strides) else {}


def _is_contiguous(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """As torch defines it: the stride of a dimension of size 1 does not count."""
    expected = 1
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return 0 in sizes
        expected *= size
    return True


def _is_dense(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a tensor fills its piece of memory, each address once: then torch's operations keep the order."""
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(strides, sizes, strict=True) if size > 1):
        if stride != expected:
            return False
        expected *= size
    return True


def laid_out(tensor: torch.Tensor, offset: int, strides: list[int]) -> torch.Tensor:
    """A copy with these strides, `offset` bytes behind an address that is a multiple of 64."""
    size = tensor.element_size()
    room = torch.empty(tensor.numel() + 64 // size, dtype=tensor.dtype)
    first = (offset - room.data_ptr()) % 64 // size
    return room.as_strided(tensor.shape, strides, first).copy_(tensor)


def _array(array: Any, packed: Packed, path: str, copied: _Copy | None) -> Any:
    if isinstance(array, np.generic):
        return _pack_value(array.item(), packed, path, copied, 0)
    try:
        native = array.dtype.newbyteorder("=")  # torch takes no other
        tensor = torch.from_numpy(array.astype(native, copy=True))
    except (TypeError, ValueError):
        return _left_out(array, packed, path)
    name = _free(packed, path)
    packed.tensors[name] = tensor
    return {"array": name}


def _left_out(value: Any, packed: Packed, path: str) -> Any:
    what = type(value).__name__
    packed.plain = False
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
    content: Any = tree.get(kind)

    def back(item: Any) -> Any:
        return _rebuilt(item, tensors, device)

    if kind in {"tensor", "complex", "array"}:
        return _leaf(tree, tensors[content], device if "device" in tree else None)
    if kind in {"dict", "mapping", "object"}:
        entries = {back(key): back(item) for key, item in content}
        return (
            entries if kind == "dict" else AttributeDict(entries) if kind == "mapping" else SimpleNamespace(**entries)
        )
    if kind == "named":
        name, names, items = content
        return namedtuple(str(name), [str(attribute) for attribute in names])(*map(back, items))
    if kind in {"list", "tuple"}:
        return [back(item) for item in content] if kind == "list" else tuple(back(item) for item in content)
    if kind == "float":
        return float(content)
    if kind == "lost":
        return None
    raise ValueError(f"unknown kind {kind!r}")


def _leaf(tree: dict[str, Any], tensor: Tensor, device: torch.device | None) -> Any:
    if "array" in tree:
        return tensor.numpy().copy()
    value = laid_out(tensor, *tree["layout"]) if "layout" in tree else tensor.clone()
    value = torch.view_as_complex(value) if "complex" in tree else value
    return value if device is None else value.to(device)
