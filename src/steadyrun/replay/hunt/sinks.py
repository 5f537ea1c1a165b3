"""The sinks that must stay finite: the loss, the gradients, the parameters and their moments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from steadyrun.program.task import Task
from steadyrun.program.torch_compat import BACKWARD, GRAD
from steadyrun.replay.hunt.dispatch_mode import Checker
from steadyrun.replay.hunt.finite_range import Bad, bad_number, bad_values, floating
from steadyrun.replay.hunt.location import Locations, plain_path, unwrapped
from steadyrun.replay.hunt.origins import Memory, Origin

Sink = Literal["root", "loss", "gradient", "update"]


@dataclass(frozen=True)
class Hit:
    """A non-finite value at a sink; `name` is the parameter, empty for the loss.

    A root is what `backward()` was called on: the loss, or the loss times a scale.
    """

    sink: Sink
    name: str
    bad: Bad
    dtype: torch.dtype
    origin: Origin | None


class Sinks:
    """Observes all sinks of one step. `roots` are the absolute values on which `backward()` was called."""

    def __init__(self, task: Task, locations: Locations, memory: Memory, checker: Checker) -> None:
        self._task, self._locations, self._memory, self._checker = task, locations, memory, checker
        self.parameters = named_parameters(task)
        self._ill = {id(weight) for weight in self._weights() if bad_values(weight)}
        self.hits: list[Hit] = []
        self.roots: list[float] = []

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Install hooks and wrappers within this context."""
        with ExitStack() as hooks:
            for name, parameter in self.parameters.items():
                if parameter.requires_grad and parameter.is_leaf:
                    listen: Any = parameter.register_post_accumulate_grad_hook
                    with suppress(Exception):  # a kind of tensor that does not accept hooks
                        hooks.callback(listen(self._arrived(name)).remove)
            hooks.callback(register_optimizer_step_pre_hook(self._before_step).remove)
            for point in (BACKWARD, GRAD):
                hooks.enter_context(point.wrapped(partial(self._runs, point.name)))
            yield

    def take_loss(self, loss: Any) -> None:
        """Inspect what the step returned."""
        with self._rest():
            if isinstance(loss, Tensor):
                if bad := bad_values(loss):
                    self._hit("loss", "", bad, loss)
            elif hasattr(loss, "__float__") and (bad := bad_number(float(loss))):
                self.hits.append(Hit("loss", "", bad, torch.float64, self._checker.number))

    def take_parameters(self) -> None:
        """Inspect the parameters and moments after the update, if they were finite before."""
        with self._rest():
            for name, tensor in [*self.parameters.items(), *self.moments()]:
                if id(tensor) not in self._ill and (bad := bad_values(tensor)):
                    self._hit("update", name, bad, tensor)

    # -- called by hooks: they must not affect the program ----------------------------------------------

    def _arrived(self, name: str) -> Callable[[Tensor], None]:
        return lambda parameter: self._take_gradient(name, parameter)

    def _before_step(self, *_: Any) -> None:
        """Inspect gradients that backward did not accumulate, or that changed since."""
        for name, parameter in self.parameters.items():
            self._take_gradient(name, parameter)

    def _take_gradient(self, name: str, parameter: Tensor) -> None:
        with suppress(Exception), self._rest():
            gradient = parameter.grad
            if gradient is not None and (bad := bad_values(gradient)):
                self._hit("gradient", name, bad, gradient)

    def _runs(self, name: str, call: Any, roots: Any, *rest: Any, **options: Any) -> Any:
        self._take_root(name, roots)
        with self._locations.backward(roots):
            return call(roots, *rest, **options)

    def _take_root(self, name: str, roots: Any) -> None:
        with suppress(Exception), self._rest():
            root = roots[0] if isinstance(roots, list | tuple) and len(roots) == 1 else roots
            if name == "backward" and floating(root) and root.numel() == 1:
                self.roots.append(abs(float(root.detach())))
                if bad := bad_values(root):
                    self._hit("root", "", bad, root)

    def _hit(self, sink: Sink, name: str, bad: Bad, tensor: Tensor) -> None:
        origin = self._memory.taint_of(tensor).guilty(bad)
        if origin is None and sink != "update":  # it came through code that torch does not show
            origin = self._memory.suspect
        if not (sink == "root" and origin is not None and origin.scaling):
            self.hits.append(Hit(sink, name, bad, tensor.dtype, origin))

    @contextmanager
    def _rest(self) -> Iterator[None]:
        resting, self._checker.resting = self._checker.resting, True
        try:
            with torch.no_grad():
                yield
        finally:
            self._checker.resting = resting

    def moments(self) -> Iterator[tuple[str, Tensor]]:
        """The optimizer tensors of each parameter, with the parameter's name."""
        names = {id(parameter): name for name, parameter in self.parameters.items()}
        for optimizer in self._task.optimizers:
            for parameter, state in getattr(optimizer, "state", {}).items():
                for value in state.values() if isinstance(state, dict) else ():
                    if floating(value) and value.shape == getattr(parameter, "shape", None):
                        yield names.get(id(parameter), ""), value

    def _weights(self) -> Iterator[Tensor]:
        yield from self.parameters.values()
        yield from (moment for _, moment in self.moments())


def named_parameters(task: Task) -> dict[str, Tensor]:
    """The parameters of the model, then those that only an optimizer has."""
    parameters: dict[str, Tensor] = {
        plain_path(name): parameter for name, parameter in unwrapped(task.model).named_parameters()
    }
    known = {id(parameter) for parameter in parameters.values()}
    for group in (group for optimizer in task.optimizers for group in getattr(optimizer, "param_groups", ())):
        for index, parameter in enumerate(group["params"]):
            if id(parameter) not in known:
                parameters[f"optimizer.{index}"] = parameter
    return parameters
