"""Changes of a training program from outside, each a context manager: inside it trains otherwise, after it as before.

What the program does in its own step stays as it is written: rates, clipping and dropout are changed where torch is
called.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from steadyrun.program.task import Task
from steadyrun.program.torch_compat import CLIP_WITH_NORM, Dropout


def groups_of(task: Task) -> list[dict[str, Any]]:
    """The parameter groups of all optimizers."""
    return [group for optimizer in task.optimizers for group in optimizer.param_groups]


# -- the learning rate -----------------------------------------------------------------------------


@contextmanager
def with_rates(
    task: Task, scaled: Callable[[float, int], float], fixed_rates: Sequence[float | None] | None = None
) -> Iterator[None]:
    """Other rates while an optimizer steps (`scaled(rate, updates before it)`); before and after, its own."""
    done = 0
    own_rates: list[Any] = []

    def before(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        own_rates[:] = [group["lr"] for group in optimizer.param_groups]
        for index, group in enumerate(optimizer.param_groups):
            fixed_rate = None if fixed_rates is None else fixed_rates[index]
            group["lr"] = scaled(group["lr"], done) if fixed_rate is None else fixed_rate

    def after(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        nonlocal done
        done += 1
        for group, rate in zip(optimizer.param_groups, own_rates, strict=True):
            group["lr"] = rate

    handles = [optimizer.register_step_pre_hook(before) for optimizer in task.optimizers]
    handles += [optimizer.register_step_post_hook(after) for optimizer in task.optimizers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


# -- gradients -------------------------------------------------------------------------------------


@contextmanager
def before_updates(task: Task, act: Callable[[Any], None]) -> Iterator[None]:
    """`act(optimizer)` before every update."""
    handles = [
        optimizer.register_step_pre_hook(lambda optimizer, _args, _kwargs: act(optimizer))
        for optimizer in task.optimizers
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def clipped(task: Task, norm: float) -> Iterator[None]:
    """Gradients clipped to this norm before every update, whatever the program itself does."""

    def clip(optimizer: Any) -> None:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        nn.utils.clip_grad_norm_([p for p in parameters if p.grad is not None], norm)

    with before_updates(task, clip):
        yield


@contextmanager
def not_clipped() -> Iterator[None]:
    """The program's own clipping measures the norm and changes nothing."""
    with CLIP_WITH_NORM.wrapped(lambda _call, *_args, **_options: None):
        yield


@contextmanager
def held_still(task: Task, parameters: Sequence[Tensor]) -> Iterator[None]:
    """These parameters get no update."""
    held = {id(parameter) for parameter in parameters}

    def forget(optimizer: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) in held:
                    parameter.grad = None

    with before_updates(task, forget):
        yield


# -- settings --------------------------------------------------------------------------------------


@contextmanager
def with_settings(task: Task, settings: Callable[[Any, dict[str, Any]], dict[str, Any]]) -> Iterator[None]:
    """Other settings of the parameter groups, as `settings(optimizer, group)` gives them."""
    kept = []
    for optimizer in task.optimizers:
        for group in optimizer.param_groups:
            changed = settings(optimizer, group)
            kept.append((group, {name: group[name] for name in changed}))
            group.update(changed)
    try:
        yield
    finally:
        for group, before in kept:
            group.update(before)


def defaults_of(optimizer: Any, *names: str) -> dict[str, Any]:
    """What torch's own optimizer of this kind has for these settings, as far as it has them."""
    parameters = inspect.signature(type(optimizer).__init__).parameters
    return {
        name: parameters[name].default
        for name in names
        if name in parameters and parameters[name].default is not inspect.Parameter.empty
    }


# -- the model -------------------------------------------------------------------------------------


def drops(module: Any) -> bool:
    """Whether a module is a dropout that is on."""
    return isinstance(module, Dropout) and module.p > 0 and not math.isnan(module.p)


class _Instead(TorchFunctionMode):
    """Other functions instead of torch's, however a program imported them."""

    def __init__(self, instead: Mapping[Any, Callable[..., Any]]) -> None:
        super().__init__()
        self._instead = instead

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        other = self._instead.get(func)
        return func(*args, **(kwargs or {})) if other is None else other(*args, **(kwargs or {}))


@contextmanager
def no_dropout(task: Task) -> Iterator[None]:
    """No dropout, as modules, as a function or inside of torch's attention."""
    changed: list[tuple[Any, str]] = [(module, "p") for module in task.model.modules() if drops(module)]
    changed += [(module, "dropout") for module in task.model.modules() if isinstance(module, nn.MultiheadAttention)]
    kept = [getattr(module, name) for module, name in changed]
    for module, name in changed:
        setattr(module, name, 0.0)
    try:
        with _Instead({nn.functional.dropout: lambda input, *_args, **_options: input}):
            yield
    finally:
        for (module, name), share in zip(changed, kept, strict=True):
            setattr(module, name, share)


@contextmanager
def no_smoothing() -> Iterator[None]:
    """Every cross-entropy without label smoothing."""

    def plain(*args: Any, **options: Any) -> Any:
        return nn.functional.cross_entropy(*args, **(options | {"label_smoothing": 0.0}))

    with _Instead({nn.functional.cross_entropy: plain}):
        yield
