"""One whole step of a program, watched: what it differentiates, unscales, clips and steps, in which order, on what."""

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
from steadyrun.program.torch_compat import wrapped

BACKWARD, UNSCALE, CLIP, STEP = "backward", "unscale", "clip", "step"


@dataclass(frozen=True)
class StepEvent:
    """One thing that a step did."""

    kind: str
    members: frozenset[int] = frozenset()  # the parameters it was about, by id
    clip: ClipCall | None = None
    root: float | None = None  # of a backward: the number it began from
    optimizer: int = 0  # of an unscale or a step, by id


@dataclass
class StepSeen:
    """What one step did to the tensors that optimizers hold, by id."""

    loss: float = float("nan")
    events: list[StepEvent] = field(default_factory=list)
    gradients: dict[int, Tensor] = field(default_factory=dict)  # when their optimizer first stepped
    rates: dict[int, float] = field(default_factory=dict)  # at that moment
    arrived: set[int] = field(default_factory=set)  # a backward gave them a gradient that is not zero
    trained_in_eval: bool = False  # the model was called in evaluation mode with gradients
    closure: bool = False  # an optimizer computes gradients itself
    before: dict[int, Tensor] = field(default_factory=dict)
    after: dict[int, Tensor] = field(default_factory=dict)

    @property
    def stepped(self) -> set[int]:
        """The tensors whose optimizer stepped."""
        return {each for event in self.events if event.kind == STEP for each in event.members}

    def change(self, key: int) -> Tensor:
        """What the step added to a tensor."""
        wide = torch.float64 if self.before[key].device.type in {"cpu", "cuda"} else torch.float32
        return dense(self.after[key]).to(wide) - dense(self.before[key]).to(wide)


def watched(bench: Bench, batch: Any) -> StepSeen:
    """Execute the program's own step on a batch; the caller undoes it."""
    seen = StepSeen()
    held = {id(each): each for each in bench.optimized}
    seen.before = {key: each.detach().clone() for key, each in held.items()}
    with _listening(seen, held), _modes(bench, seen), torch.enable_grad():
        seen.loss = bench.own_step(batch)
    seen.after = {key: each.detach().clone() for key, each in held.items()}
    return seen


def dense(tensor: Tensor) -> Tensor:
    """The real numbers of a tensor that may be sparse or complex."""
    tensor = tensor.detach()
    tensor = tensor.coalesce().values() if tensor.is_sparse else tensor
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def rate_of(group: dict[str, Any], name: str = "lr") -> float:
    """A group's learning rate; NaN where it has none (Adafactor may find its own)."""
    held = group.get(name)
    if isinstance(held, Tensor):
        return float(held)
    return float(held) if isinstance(held, int | float) else float("nan")


def any_number(tensor: Tensor) -> bool:
    """Whether a gradient is anything but zeros."""
    return bool(dense(tensor).ne(0).any())


@contextmanager
def _listening(seen: StepSeen, held: dict[int, Tensor]) -> Iterator[None]:
    def began(root: Tensor | None) -> None:
        seen.events.append(StepEvent(BACKWARD, root=None if root is None else float(root.detach())))

    def clipped(call: ClipCall) -> None:
        members = frozenset(id(each) for each in call.parameters)
        seen.events.append(StepEvent(CLIP, members & frozenset(held) or members, call))

    def steps(optimizer: Any, args: Any, kwargs: Any) -> None:
        seen.closure |= any(callable(each) for each in [*args[1:], *kwargs.values()])
        _note_step(seen, optimizer)

    handles: list[Any] = [register_optimizer_step_pre_hook(steps)]
    for key, each in held.items():
        if each.is_leaf and each.requires_grad:
            handles.append(each.register_post_accumulate_grad_hook(_noting(seen, key)))  # type: ignore[no-untyped-call]
    clip_hook.observe(clipped)
    backward_hook.observe(began)
    try:
        with _unscaling(seen):
            yield
    finally:
        backward_hook.forget(began)
        clip_hook.forget(clipped)
        for handle in handles:
            handle.remove()


@contextmanager
def _modes(bench: Bench, seen: StepSeen) -> Iterator[None]:
    """Notes a call of the model in evaluation mode while gradients are recorded."""

    def entered(module: nn.Module, _args: Any) -> None:
        seen.trained_in_eval |= not module.training and torch.is_grad_enabled()

    handle = bench.model.register_forward_pre_hook(entered)
    try:
        yield
    finally:
        handle.remove()


def _note_step(seen: StepSeen, optimizer: Any) -> None:
    members = []
    first = seen.stepped
    for group in optimizer.param_groups:
        for each in group["params"]:
            members.append(id(each))
            if id(each) in first:
                continue
            seen.rates[id(each)] = rate_of(group)
            if each.grad is not None:
                seen.gradients[id(each)] = each.grad.detach().clone()
    seen.events.append(StepEvent(STEP, frozenset(members), optimizer=id(optimizer)))


def _noting(seen: StepSeen, key: int) -> Any:
    def arrived(tensor: Tensor) -> None:
        if key not in seen.arrived and tensor.grad is not None and any_number(tensor.grad):
            seen.arrived.add(key)

    return arrived


@contextmanager
def _unscaling(seen: StepSeen) -> Iterator[None]:
    """A loss scaler divides gradients in one method, whether `unscale_` or `step` asks for it."""
    if not hasattr(torch.amp.GradScaler, "_unscale_grads_"):
        yield
        return

    def unscale(call: Any, scaler: Any, optimizer: Any, *rest: Any, **options: Any) -> Any:
        members = frozenset(id(each) for group in optimizer.param_groups for each in group["params"])
        seen.events.append(StepEvent(UNSCALE, members, optimizer=id(optimizer)))
        return call(scaler, optimizer, *rest, **options)

    with wrapped(torch.amp.GradScaler, "_unscale_grads_", unscale):
        yield
