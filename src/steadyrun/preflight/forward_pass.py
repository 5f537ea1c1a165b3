"""The calls, loss and gradients of one pass over a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from steadyrun.probes.float_tensors import first_float
from steadyrun.probes.loss_graph import LossGraph

Edit = Callable[[tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]


@dataclass(frozen=True)
class ModelCall:
    """One call of the model: its inputs and its output."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any

    @property
    def scores(self) -> Tensor | None:
        """The output's `logits`, or its first float tensor."""
        named = getattr(self.output, "logits", None)
        return named if isinstance(named, Tensor) else first_float(self.output)

    def tensors(self) -> list[Tensor]:
        """The tensors among the inputs."""
        return [argument for argument in (*self.args, *self.kwargs.values()) if isinstance(argument, Tensor)]


@dataclass(frozen=True)
class Pass:
    """One forward pass of the loss function, with the gradients if backward ran."""

    loss: float
    graph: LossGraph
    calls: list[ModelCall]
    gradients: dict[str, Tensor] = field(default_factory=dict)  # by parameter name; absent if None


@dataclass(frozen=True)
class Quiet:
    """A model's scores in evaluation mode."""

    scores: Tensor
    noise: float  # largest difference between two passes over the same batch
    size: float  # the largest score

    def limit(self, relative: float) -> float:
        """The change beyond which a score counts as moved."""
        return max(relative * self.size, 10 * self.noise)


@contextmanager
def calls_of(model: nn.Module, edit: Edit | None = None) -> Iterator[list[ModelCall]]:
    """The calls of a model within the body; `edit` changes the inputs of the first."""
    calls: list[ModelCall] = []
    pending: list[Edit] = [] if edit is None else [edit]

    def before(_module: nn.Module, args: Any, kwargs: Any) -> Any:
        return pending.pop()(args, kwargs) if pending else None

    def after(_module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        calls.append(ModelCall(args, kwargs, output))

    handles = [
        model.register_forward_pre_hook(before, with_kwargs=True),
        model.register_forward_hook(after, with_kwargs=True),
    ]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()
