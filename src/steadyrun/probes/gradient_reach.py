"""Which parameters receive a gradient: those cut off from the loss, in no optimizer, or unknown to the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from torch import Tensor, nn

from steadyrun.probes.optimizer_steps import OptimizerLike
from steadyrun.program.containers import parts
from steadyrun.program.model_parts import clean

_DEEP = 4  # levels of lists and dictionaries in which layers may hide from their model
_REGISTERED = ("_parameters", "_buffers", "_modules")


def hidden_tensors(model: nn.Module) -> dict[int, tuple[str, Tensor]]:
    """By id: tensors that need a gradient, are reachable from the model's attributes, and are not its parameters."""
    registered = {id(parameter) for parameter in model.parameters()}
    hidden: dict[int, tuple[str, Tensor]] = {}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name in _REGISTERED or name.startswith("__"):
                continue
            attribute = clean(f"{path}.{name}" if path else name)
            for path_inside, tensor in _within(value, attribute, _DEEP):
                if tensor.requires_grad and tensor.is_leaf and id(tensor) not in registered:
                    hidden.setdefault(id(tensor), (path_inside, tensor))
    return hidden


def _within(value: object, path: str, depth: int) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, nn.Module):
        yield from ((f"{path}.{name}", parameter) for name, parameter in value.named_parameters())
    elif depth and isinstance(value, Mapping | list | tuple | set):
        for step, part in parts(list(value) if isinstance(value, set) else value):
            yield from _within(part, path + step, depth - 1)


_MOST_NAMES = 20


class Reach:
    """Compares the leaves of a loss's graph with the model and its optimizers."""

    def __init__(self, model: nn.Module, optimizers: Callable[[], list[OptimizerLike]]) -> None:
        self._model, self._optimizers = model, optimizers
        self._unreached: set[str] | None = None

    def facts(self, reached: set[int], order: list[int]) -> dict[str, object]:
        """Names and counts; `order` has the ids of the modules with parameters as they ran."""
        groups = [group for optimizer in self._optimizers() for group in optimizer.param_groups]
        params = [parameter for group in groups for parameter in group["params"]]
        optimized = {id(parameter) for parameter in params}
        named = {clean(name): parameter for name, parameter in self._model.named_parameters()}
        trained = {
            name: parameter
            for name, parameter in named.items()
            if parameter.requires_grad and id(parameter) in optimized
        }
        unreached = {name for name, parameter in trained.items() if id(parameter) not in reached}
        if any(hasattr(trained[name], "device_mesh") for name in unreached):
            return {}  # FSDP computes with whole tensors that it makes of the shards: the graph does not lead to these
        # An expert that no token chose, a head that this batch did not need: only what is never reached counts.
        self._unreached = unreached if self._unreached is None else self._unreached & unreached
        known = {id(parameter) for parameter in named.values()}
        free = reached - optimized
        hidden = [path for key, (path, _) in hidden_tensors(self._model).items() if key in free]
        left_out = [name for name, parameter in named.items() if parameter.requires_grad and id(parameter) in free]
        return {
            "trained": len(trained),
            "unreached": sorted(self._unreached)[:_MOST_NAMES],
            "unreached_count": len(self._unreached),
            "cut_before": _cut(self._model, {id(named[name]) for name in self._unreached}, order),
            "left_out": left_out[:_MOST_NAMES] if params else [],
            "left_out_count": len(left_out) if params else 0,
            "strange": sum(id(parameter) not in known for parameter in params),
            "hidden": hidden[:_MOST_NAMES],
            "hidden_count": len(hidden),
        }


def _cut(model: nn.Module, unreached: set[int], order: list[int]) -> str:
    """The first module that the gradient reaches, where it reaches none of those that ran before it."""
    modules = {id(module): (clean(path), module) for path, module in model.named_modules()}
    ran = [modules[key] for key in order if key in modules]
    own: list[tuple[str, list[Tensor]]] = [
        (path, [parameter for parameter in module.parameters(recurse=False) if parameter.requires_grad])
        for path, module in ran
    ]
    last = {id(parameter): turn for turn, (_, parameters) in enumerate(own) for parameter in parameters}
    before = 0
    for turn, (path, parameters) in enumerate(own):
        alone = [
            parameter for parameter in parameters if last[id(parameter)] == turn
        ]  # a tied weight is reached from its other end
        if not alone:
            continue
        if not all(id(parameter) in unreached for parameter in alone):
            return path if before else ""
        before += 1
    return ""
