"""Whom the gradient of a loss reaches: parameters cut off from it, in no optimizer, or unknown to the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from steadyrun.program.model_parts import clean

# Tensors that a model uses and does not know of: layers in a plain list, a dictionary, an attribute of an object.


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


_MOST_NAMES = 20


class Reach:
    """Compares the leaves of a loss's graph with the model and its optimizers."""

    def __init__(self, model: nn.Module, optimizers: Callable[[], list[Any]]) -> None:
        self._model, self._optimizers = model, optimizers
        self._unreached: set[str] | None = None

    def facts(self, reached: set[int], order: list[int]) -> dict[str, Any]:
        """Names and counts; `order` has the ids of the modules with parameters as they ran."""
        groups = [group for optimizer in self._optimizers() for group in optimizer.param_groups]
        held = [each for group in groups for each in group["params"]]
        optimized = {id(each) for each in held}
        named = {clean(name): each for name, each in self._model.named_parameters()}
        trained = {name: each for name, each in named.items() if each.requires_grad and id(each) in optimized}
        unreached = {name for name, each in trained.items() if id(each) not in reached}
        # An expert that no token chose, a head that this batch did not need: only what is never reached counts.
        self._unreached = unreached if self._unreached is None else self._unreached & unreached
        mine = {id(each) for each in named.values()}
        free = reached - optimized
        hidden = [where for key, (where, _) in hidden_tensors(self._model).items() if key in free]
        left_out = [name for name, each in named.items() if each.requires_grad and id(each) in free]
        return {
            "trained": len(trained),
            "unreached": sorted(self._unreached)[:_MOST_NAMES],
            "unreached_count": len(self._unreached),
            "cut_before": _cut(self._model, {id(named[name]) for name in self._unreached}, order),
            "left_out": left_out[:_MOST_NAMES] if held else [],
            "left_out_count": len(left_out) if held else 0,
            "strange": sum(id(each) not in mine for each in held),
            "hidden": hidden[:_MOST_NAMES],
            "hidden_count": len(hidden),
        }


def _cut(model: nn.Module, unreached: set[int], order: list[int]) -> str:
    """The first module that the gradient reaches, where it reaches none of those that ran before it."""
    modules = {id(module): (clean(path), module) for path, module in model.named_modules()}
    ran = [modules[key] for key in order if key in modules]
    own: list[tuple[str, list[Tensor]]] = [
        (path, [each for each in module.parameters(recurse=False) if each.requires_grad]) for path, module in ran
    ]
    last = {id(each): place for place, (_, held) in enumerate(own) for each in held}
    before = 0
    for place, (path, held) in enumerate(own):
        alone = [each for each in held if last[id(each)] == place]  # a tied weight is reached from its other end
        if not alone:
            continue
        if not all(id(each) in unreached for each in alone):
            return path if before else ""
        before += 1
    return ""
