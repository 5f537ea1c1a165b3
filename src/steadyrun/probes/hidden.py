"""Tensors that a model uses and does not know of: layers in a plain list, a dictionary, an attribute of an object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from steadyrun.probes.blocks import clean

_DEEP = 4
_REGISTERED = ("_parameters", "_buffers", "_modules")


def hidden_tensors(model: nn.Module) -> dict[int, tuple[str, Tensor]]:
    """By id: tensors that need a gradient, are reachable from the model's attributes, and are not its parameters."""
    mine = {id(held) for held in model.parameters()}
    found: dict[int, tuple[str, Tensor]] = {}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name in _REGISTERED or name.startswith("__"):
                continue
            place = clean(f"{path}.{name}" if path else name)
            for where, tensor in _within(value, place, _DEEP):
                if tensor.requires_grad and tensor.is_leaf and id(tensor) not in mine:
                    found.setdefault(id(tensor), (where, tensor))
    return found


def _within(held: Any, place: str, depth: int) -> Iterator[tuple[str, Tensor]]:
    if isinstance(held, Tensor):
        yield place, held
    elif isinstance(held, nn.Module):
        yield from ((f"{place}.{name}", parameter) for name, parameter in held.named_parameters())
    elif depth and isinstance(held, Mapping):
        for key, item in held.items():
            yield from _within(item, f"{place}[{key!r}]", depth - 1)
    elif depth and isinstance(held, list | tuple | set):
        for number, item in enumerate(held):
            yield from _within(item, f"{place}[{number}]", depth - 1)
