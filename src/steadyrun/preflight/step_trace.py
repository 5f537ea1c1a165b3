"""A trace of one step of a program: its backward, unscale, clip and step calls, in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from steadyrun.preflight.bench import Bench
from steadyrun.probes import backward_hook, clip_hook
from steadyrun.probes.clip_hook import ClipCall
from steadyrun.program.torch_compat import UNSCALE_GRADIENTS

BACKWARD, UNSCALE, CLIP, STEP = "backward", "unscale", "clip", "step"


@dataclass(frozen=True)
class StepEvent:
    """One call within a step."""

    kind: str
    members: frozenset[int] = frozenset()  # the parameters it applies to, by id
    clip: ClipCall | None = None
    root: float | None = None  # of a backward: the value of its root
    optimizer: int = 0  # of an unscale or a step, by id


@dataclass
class StepTrace:
    """The effects of one step on the tensors of the optimizers, by id."""

    loss: float = float("nan")
    events: list[StepEvent] = field(default_factory=list)
    gradients: dict[int, Tensor] = field(default_factory=dict)  # when their optimizer first stepped
    rates: dict[int, float] = field(default_factory=dict)  # at the same time
    arrived: set[int] = field(default_factory=set)  # got a nonzero gradient from a backward
    trained_in_eval: bool = False  # the model ran in evaluation mode with gradients
    closure: bool = False  # an optimizer computes gradients itself
    before: dict[int, Tensor] = field(default_factory=dict)
    after: dict[int, Tensor] = field(default_factory=dict)

    @property
    def stepped(self) -> set[int]:
        """The tensors whose optimizer stepped."""
        return {member for event in self.events if event.kind == STEP for member in event.members}

    def change(self, key: int) -> Tensor:
        """The change of a tensor by the step."""
        wide = torch.float64 if self.before[key].device.type in {"cpu", "cuda"} else torch.float32
        return dense(self.after[key]).to(wide) - dense(self.before[key]).to(wide)


def traced_step(bench: Bench, batch: Any) -> StepTrace:
    """Execute the program's own step on a batch; the caller undoes it."""
    trace = StepTrace()
    optimized = {id(tensor): tensor for tensor in bench.optimized}
    trace.before = {key: tensor.detach().clone() for key, tensor in optimized.items()}
    with _listening(trace, optimized), _modes(bench, trace), torch.enable_grad():
        trace.loss = bench.own_step(batch)
    trace.after = {key: tensor.detach().clone() for key, tensor in optimized.items()}
    return trace


def dense(tensor: Tensor) -> Tensor:
    """The real numbers of a tensor that may be sparse or complex."""
    tensor = tensor.detach()
    tensor = tensor.coalesce().values() if tensor.is_sparse else tensor
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def rate_of(group: dict[str, Any], name: str = "lr") -> float:
    """A group's learning rate; NaN if it has none (Adafactor may compute its own)."""
    rate = group.get(name)
    if isinstance(rate, Tensor):
        return float(rate)
    return float(rate) if isinstance(rate, int | float) else float("nan")


def any_number(tensor: Tensor) -> bool:
    """Whether a gradient has a nonzero value."""
    return bool(dense(tensor).ne(0).any())


@contextmanager
def _listening(trace: StepTrace, optimized: dict[int, Tensor]) -> Iterator[None]:
    def began(root: Tensor | None) -> None:
        trace.events.append(StepEvent(BACKWARD, root=None if root is None else float(root.detach())))

    def clipped(call: ClipCall) -> None:
        members = frozenset(id(parameter) for parameter in call.parameters)
        trace.events.append(StepEvent(CLIP, members & frozenset(optimized) or members, call))

    def steps(optimizer: Any, args: Any, kwargs: Any) -> None:
        trace.closure |= any(callable(argument) for argument in [*args[1:], *kwargs.values()])
        _note_step(trace, optimizer)

    handles: list[Any] = [register_optimizer_step_pre_hook(steps)]
    for key, tensor in optimized.items():
        if tensor.is_leaf and tensor.requires_grad:
            handles.append(tensor.register_post_accumulate_grad_hook(_noting(trace, key)))  # type: ignore[no-untyped-call]
    clip_hook.observe(clipped)
    backward_hook.observe(began)
    try:
        with _unscaling(trace):
            yield
    finally:
        backward_hook.forget(began)
        clip_hook.forget(clipped)
        for handle in handles:
            handle.remove()


@contextmanager
def _modes(bench: Bench, trace: StepTrace) -> Iterator[None]:
    """Record whether the model runs in evaluation mode with gradients enabled."""

    def entered(module: nn.Module, _args: Any) -> None:
        trace.trained_in_eval |= not module.training and torch.is_grad_enabled()

    handle = bench.model.register_forward_pre_hook(entered)
    try:
        yield
    finally:
        handle.remove()


def _note_step(trace: StepTrace, optimizer: Any) -> None:
    members = []
    first = trace.stepped
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            members.append(id(parameter))
            if id(parameter) in first:
                continue
            trace.rates[id(parameter)] = rate_of(group)
            if parameter.grad is not None:
                trace.gradients[id(parameter)] = parameter.grad.detach().clone()
    trace.events.append(StepEvent(STEP, frozenset(members), optimizer=id(optimizer)))


def _noting(trace: StepTrace, key: int) -> Any:
    def arrived(tensor: Tensor) -> None:
        if key not in trace.arrived and tensor.grad is not None and any_number(tensor.grad):
            trace.arrived.add(key)

    return arrived


@contextmanager
def _unscaling(trace: StepTrace) -> Iterator[None]:
    """Record when a loss scaler divides gradients, in `unscale_` or in `step`."""
    if not UNSCALE_GRADIENTS.exists:
        yield
        return

    def unscale(call: Any, scaler: Any, optimizer: Any, *rest: Any, **options: Any) -> Any:
        members = frozenset(id(parameter) for group in optimizer.param_groups for parameter in group["params"])
        trace.events.append(StepEvent(UNSCALE, members, optimizer=id(optimizer)))
        return call(scaler, optimizer, *rest, **options)

    with UNSCALE_GRADIENTS.wrapped(unscale):
        yield
