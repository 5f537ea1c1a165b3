"""Plain attributes of a program's objects, kept and put back: numbers, tensors, and containers of them."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

_PLAIN = (bool, int, float, str, type(None))
_OWN = frozenset(vars(nn.Module())) | {"state", "param_groups", "defaults"}
_CONTAINERS = (list, dict, set, deque, defaultdict, OrderedDict, Counter)
_LONGEST = 4_096


@dataclass
class SavedTensor:
    """A tensor, where it was, and what was in it."""

    tensor: Tensor
    copy: Tensor
    memory: Tensor  # the same numbers in the same place: a program may give a tensor another one

    @classmethod
    def of(cls, tensor: Tensor) -> SavedTensor:
        memory = local_part(tensor.detach())
        return cls(tensor, memory.clone(), memory)

    def put_back(self) -> None:
        with torch.no_grad():
            if not same(self.memory, self.copy):
                self.memory.copy_(self.copy)
            if hasattr(self.tensor, "to_local"):
                if not same(self.tensor, self.copy):
                    local_part(self.tensor).copy_(self.copy)
                return
            moved = not self.copy.is_sparse and self.tensor.data_ptr() != self.memory.data_ptr()
            if moved or not same(self.tensor, self.copy):
                self.tensor.data = self.memory


@dataclass
class _SavedObject:
    """Any other object, put back as it is; a tuple's tensors keep their values."""

    original: Any
    tensors: list[SavedTensor]

    @classmethod
    def of(cls, original: Any) -> _SavedObject:
        members = original if isinstance(original, tuple) else ()
        return cls(original, [SavedTensor.of(member) for member in members if isinstance(member, Tensor)])

    def put_back(self) -> None:
        for saved in self.tensors:
            saved.put_back()


@dataclass
class _SavedContainer:
    """A list, dictionary, set or deque and what was in it; tensors in it also keep their values."""

    original: Any
    members: Any
    tensors: list[SavedTensor] = field(default_factory=list)

    @classmethod
    def of(cls, container: Any) -> _SavedContainer:
        values = container.values() if isinstance(container, dict) else container
        return cls(
            container, container.copy(), [SavedTensor.of(value) for value in values if isinstance(value, Tensor)]
        )

    def put_back(self) -> None:
        for saved in self.tensors:
            saved.put_back()
        self.original.clear()
        if isinstance(self.original, dict | set):
            self.original.update(self.members)
        else:
            self.original.extend(self.members)


class Attributes:
    """The plain attributes of many objects at one moment."""

    def __init__(self, objects: Iterable[Any]) -> None:
        self._objects = [
            (owner, _saved_attributes(owner), frozenset(vars(owner))) for owner in objects if hasattr(owner, "__dict__")
        ]

    def put_back(self) -> None:
        for owner, attributes, known in self._objects:
            for name in [name for name, value in vars(owner).items() if name not in known and _is_data(value)]:
                del vars(owner)[name]  # a cache, a counter that was not there before
            for name, value in attributes.items():
                if isinstance(value, SavedTensor | _SavedContainer | _SavedObject):
                    value.put_back()
                vars(owner)[name] = _original(value)

    def changed(self) -> list[tuple[Any, str]]:
        """Which attributes are not as they were."""
        return [
            (owner, name)
            for owner, attributes, _ in self._objects
            for name, value in attributes.items()
            if not _unchanged(vars(owner).get(name), value)
        ]


def local_part(tensor: Tensor) -> Tensor:
    """The part of a DTensor that this rank holds; any other tensor is whole. No rank waits for another."""
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part.wait() if hasattr(part, "wait") else part


def same(one: Tensor, other: Tensor) -> bool:
    """Bit for bit, of a DTensor the part of this rank; NaN is the same as NaN."""
    one, other = local_part(one.detach()), local_part(other)
    if one.is_sparse or other.is_sparse:
        if one.layout != other.layout or one.shape != other.shape:
            return False
        one, other = one.coalesce(), other.detach().coalesce()
        return torch.equal(one.indices(), other.indices()) and same(one.values(), other.values())
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if torch.equal(one, other):
        return True
    return bool(
        one.is_floating_point()
        and torch.equal(one.isnan(), other.isnan())
        and torch.equal(one.nan_to_num(), other.nan_to_num())
    )


def _saved_attributes(owner: Any) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in vars(owner).items():
        if name in _OWN or name.startswith("__"):
            continue
        if type(value) in _PLAIN:
            kept[name] = value
        elif isinstance(value, Tensor):
            kept[name] = SavedTensor.of(value) if value.device.type != "meta" else value
        elif type(value) in _CONTAINERS and len(value) <= _LONGEST:
            kept[name] = _SavedContainer.of(value)
        else:
            kept[name] = _SavedObject.of(value)
    return kept


def _is_data(value: Any) -> bool:
    return type(value) in (*_PLAIN, *_CONTAINERS, tuple) or isinstance(value, Tensor)


def _original(value: Any) -> Any:
    if isinstance(value, SavedTensor):
        return value.tensor
    return value.original if isinstance(value, _SavedContainer | _SavedObject) else value


def _unchanged(now: Any, then: Any) -> bool:
    if isinstance(then, SavedTensor):
        return isinstance(now, Tensor) and same(now, then.copy)
    if isinstance(then, _SavedContainer):
        return len(now or ()) == len(then.members) and all(same(saved.tensor, saved.copy) for saved in then.tensors)
    if isinstance(then, _SavedObject):
        return now is then.original and all(same(saved.tensor, saved.copy) for saved in then.tensors)
    return type(now) is type(then) and now == then
