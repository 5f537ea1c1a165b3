"""The program's own autograd functions: found in the graph, checked in float64, replaced by autograd."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function

from steadyrun.program.containers import rebuilt
from steadyrun.program.program_state import untouched
from steadyrun.program.torch_compat import wrapped

if TYPE_CHECKING:
    from steadyrun.trial.twin import Twin

_MOST_NUMBERS = 256  # of an input, since a numerical derivative needs two calls for each
_MOST_NODES = 50_000


@dataclass(frozen=True)
class FunctionCheck:
    """Whether the backward of one function is the derivative of its forward."""

    name: str
    right: bool
    message: str


def custom_functions(twin: Twin) -> list[type[Function]]:
    """The classes of the program's own functions in the graph of one loss, each once."""
    with untouched(twin.task), torch.enable_grad():
        twin.model.train()
        root = twin.loss(twin._single(twin.data.training[0])).grad_fn
    found: dict[str, type[Function]] = {}
    waiting: list[Any] = [root]
    seen: set[Any] = set()
    while waiting and len(seen) < _MOST_NODES:
        node: Any = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        made = getattr(type(node), "_forward_cls", None)
        if made is not None and not made.__module__.startswith("torch."):
            found[made.__qualname__] = made
        waiting.extend(below for below, _ in node.next_functions)
    return list(found.values())


def checked(twin: Twin, function: type[Function]) -> FunctionCheck:
    """Compare its backward with numerical derivatives in float64, on part of its real inputs."""
    calls: list[tuple[Any, ...]] = []

    def noted(call: Any, *args: Any) -> Any:
        if not calls:
            calls.append(rebuilt(args, _detached))
        return call(*args)

    with untouched(twin.task), torch.enable_grad(), wrapped(function, "apply", noted):
        twin.model.train()
        twin.loss(twin._single(twin.data.training[0]))
    if not calls:
        return FunctionCheck(function.__name__, True, "not checked: the program does not call it through apply")
    given = tuple(_small(value) for value in calls[0])
    try:
        right = torch.autograd.gradcheck(function.apply, given, eps=1e-6, atol=1e-4, rtol=1e-3, raise_exception=False)
    except Exception as problem:
        why = f"it fails in float64 on its own inputs: {type(problem).__name__}: {problem}".splitlines()[0]
        return FunctionCheck(function.__name__, True, f"not checked: {why}")
    words = "agrees with" if right else "differs from"
    return FunctionCheck(function.__name__, right, f"its backward {words} numerical derivatives in float64")


def _detached(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _small(value: Any) -> Any:
    """Part of an input in float64, cut by rows so that inputs still fit each other."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return value[:2] if isinstance(value, Tensor) and value.dim() else value
    part = value
    while part.numel() > _MOST_NUMBERS and part.dim() and part.shape[0] > 1:
        part = part[: max(1, part.shape[0] // 2)]
    return part.double().requires_grad_()


class _Context:
    """A context that discards what a forward saves, because autograd saves what it needs."""

    def __init__(self) -> None:
        self.needs_input_grad = ()

    def save_for_backward(self, *_tensors: Any) -> None:
        pass

    mark_dirty = mark_non_differentiable = set_materialize_grads = save_for_backward


@contextmanager
def plain_backward(function: type[Function]) -> Iterator[None]:
    """Run its forward as ordinary operations that autograd differentiates."""

    def forward(_call: Any, *args: Any) -> Any:
        has_context = function.setup_context is Function.setup_context  # the older form, with ctx as the first argument
        return function.forward(_Context(), *args) if has_context else function.forward(*args)

    with wrapped(function, "apply", forward):
        yield
