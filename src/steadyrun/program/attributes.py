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
class Held:
    """A tensor, where it was, and what was in it."""

    tensor: Tensor
    copy: Tensor
    memory: Tensor  # the same numbers in the same place: a program may give a tensor another one

    @classmethod
    def of(cls, tensor: Tensor) -> Held:
        return cls(tensor, tensor.detach().clone(), tensor.detach())

    def put_back(self) -> None:
        with torch.no_grad():
            if not same(self.memory, self.copy):
                self.memory.copy_(self.copy)
            moved = not self.copy.is_sparse and self.tensor.data_ptr() != self.memory.data_ptr()
            if moved or not same(self.tensor, self.copy):
                self.tensor.data = self.memory


@dataclass
class _Other:
    """Any other object, put back as it is; a tuple's tensors keep their values."""

    held: Any
    tensors: list[Held]

    @classmethod
    def of(cls, held: Any) -> _Other:
        inside = held if isinstance(held, tuple) else ()
        return cls(held, [Held.of(each) for each in inside if isinstance(each, Tensor)])

    def put_back(self) -> None:
        for each in self.tensors:
            each.put_back()


@dataclass
class _Container:
    """A list, dictionary, set or deque and what was in it; tensors in it keep their values, too."""

    held: Any
    members: Any
    tensors: list[Held] = field(default_factory=list)

    @classmethod
    def of(cls, held: Any) -> _Container:
        values = held.values() if isinstance(held, dict) else held
        return cls(held, held.copy(), [Held.of(each) for each in values if isinstance(each, Tensor)])

    def put_back(self) -> None:
        for each in self.tensors:
            each.put_back()
        self.held.clear()
        if isinstance(self.held, dict | set):
            self.held.update(self.members)
        else:
            self.held.extend(self.members)


class Attributes:
    """The plain attributes of many objects at one moment."""

    def __init__(self, objects: Iterable[Any]) -> None:
        self._objects = [(held, _of(held), frozenset(vars(held))) for held in objects if hasattr(held, "__dict__")]

    def put_back(self) -> None:
        for held, attributes, known in self._objects:
            for name in [name for name, value in vars(held).items() if name not in known and _kind(value)]:
                del vars(held)[name]  # a cache, a counter that was not there before
            for name, value in attributes.items():
                if isinstance(value, Held | _Container | _Other):
                    value.put_back()
                vars(held)[name] = _content(value)

    def changed(self) -> list[tuple[Any, str]]:
        """Which attributes are not as they were."""
        return [
            (held, name)
            for held, attributes, _ in self._objects
            for name, value in attributes.items()
            if not _unchanged(vars(held).get(name), value)
        ]


def same(one: Tensor, other: Tensor) -> bool:
    """Bit for bit; NaN is the same as NaN."""
    one = one.detach()
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


def _of(held: Any) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in vars(held).items():
        if name in _OWN or name.startswith("__"):
            continue
        if type(value) in _PLAIN:
            kept[name] = value
        elif isinstance(value, Tensor):
            kept[name] = Held.of(value) if value.device.type != "meta" else value
        elif type(value) in _CONTAINERS and len(value) <= _LONGEST:
            kept[name] = _Container.of(value)
        else:
            kept[name] = _Other.of(value)
    return kept


def _kind(value: Any) -> bool:
    return type(value) in (*_PLAIN, *_CONTAINERS, tuple) or isinstance(value, Tensor)


def _content(value: Any) -> Any:
    if isinstance(value, Held):
        return value.tensor
    return value.held if isinstance(value, _Container | _Other) else value


def _unchanged(now: Any, then: Any) -> bool:
    if isinstance(then, Held):
        return isinstance(now, Tensor) and same(now, then.copy)
    if isinstance(then, _Container):
        return len(now or ()) == len(then.members) and all(same(each.tensor, each.copy) for each in then.tensors)
    if isinstance(then, _Other):
        return now is then.held and all(same(each.tensor, each.copy) for each in then.tensors)
    return type(now) is type(then) and now == then
