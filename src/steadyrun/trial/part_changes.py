"""Changes of the model's parts and of the loss's terms; the invasive ones replace blocks and backwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from steadyrun.program.model_parts import find_blocks
from steadyrun.program.program_state import untouched
from steadyrun.program.training_changes import held_still
from steadyrun.trial.custom_functions import checked, custom_functions, plain_backward
from steadyrun.trial.factor import BLOCK, FUNCTION, PART, TERM, Factor, NotVaried
from steadyrun.trial.loss_terms import Terms
from steadyrun.trial.twin import Twin

_MOST_BLOCKS = 6


def _blocks(twin: Twin) -> list[tuple[str, nn.Module]]:
    found = [(block.name, block.module) for block in find_blocks(twin.model) if not block.input]
    with_weights = [(name, module) for name, module in found if any(True for _ in module.parameters())]
    if len(with_weights) <= _MOST_BLOCKS:
        return with_weights
    places = {round(index * (len(with_weights) - 1) / (_MOST_BLOCKS - 1)) for index in range(_MOST_BLOCKS)}
    return [with_weights[place] for place in sorted(places)]


def parts(twin: Twin) -> Iterator[Factor | NotVaried]:
    blocks = _blocks(twin)
    if len(blocks) < 2:
        yield NotVaried("freeze", PART, "frozen parts", "the model has fewer than two blocks to freeze")
    for name, module in blocks if len(blocks) > 1 else []:
        parameters = list(module.parameters())
        yield Factor(
            f"freeze:{name}",
            PART,
            f"{name} frozen",
            lambda t, parameters=parameters: held_still(t.task, parameters),  # type: ignore[misc]
        )


def terms(twin: Twin) -> Iterator[Factor | NotVaried]:
    count = len(compares(twin))
    if count < 2:
        yield NotVaried("term", TERM, "terms of the loss", "the loss is not a sum of terms")
        return
    for index in range(count):
        words = f"term {index + 1} of the loss off"
        yield Factor(f"term:{index}", TERM, words, lambda t, index=index: _without_term(t, index))  # type: ignore[misc]


def compares(twin: Twin) -> list[bool]:
    """For each term of the loss, whether it compares something with targets."""
    seen = Terms()
    with untouched(twin.task), torch.enable_grad(), seen:
        twin.model.train()
        twin.task.loss_fn(twin.task.model, twin._single(twin.data.training[0]))
    return seen.compares


@contextmanager
def _without_term(twin: Twin, index: int) -> Iterator[None]:
    own = twin.task.loss_fn

    def loss_fn(*args: Any, **options: Any) -> Any:
        with Terms(off=index):
            return own(*args, **options)

    twin.task.loss_fn = loss_fn
    try:
        yield
    finally:
        twin.task.loss_fn = own


# -- invasive --------------------------------------------------------------------------------------


def invasive(twin: Twin) -> Iterator[Factor | NotVaried]:
    shapes = _shapes(twin)
    kept = [(name, module) for name, module in _blocks(twin) if shapes.get(id(module))]
    for name, module in kept:
        yield Factor(
            f"identity:{name}",
            BLOCK,
            f"{name} replaced by identity",
            lambda _t, module=module: _as_identity(module),  # type: ignore[misc]
            invasive=True,
        )
    if not kept:
        yield NotVaried("identity", BLOCK, "blocks replaced by identity", "no block returns the shape of its input")
    norms = [module for module in twin.model.modules() if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d)]
    if norms:
        words = "batch norm replaced by a norm per example"
        yield Factor("other-norm", BLOCK, words, lambda _t: _other_norm(norms), invasive=True)
    else:
        yield NotVaried("other-norm", BLOCK, "another norm", "the model has no batch norm")
    positions = [module for name, module in twin.model.named_modules() if _is_rotary(name, module)]
    if positions:
        words = "rotary positions off"
        yield Factor("no-rotary", BLOCK, words, lambda _t: _without_rotary(positions), invasive=True)
    functions = custom_functions(twin)
    for function in functions:
        yield Factor(
            f"autograd:{function.__qualname__}",
            FUNCTION,
            f"the backward of {function.__name__} by autograd ({checked(twin, function).message})",
            lambda _t, function=function: plain_backward(function),  # type: ignore[misc]
            removes=True,
            invasive=True,
        )
    if not functions:
        yield NotVaried(
            "autograd",
            FUNCTION,
            "custom backward functions",
            "the loss uses no autograd function of the program",
        )


def _shapes(twin: Twin) -> dict[int, bool]:
    """By module id, whether its output has the shape of its first input."""
    alike: dict[int, bool] = {}

    def noted(module: nn.Module, args: Any, output: Any) -> None:
        given = args[0] if args and isinstance(args[0], Tensor) else None
        alike[id(module)] = given is not None and isinstance(output, Tensor) and output.shape == given.shape

    handles = [module.register_forward_hook(noted) for module in twin.model.modules()]
    try:
        with untouched(twin.task), torch.enable_grad():
            twin.loss(twin._single(twin.data.training[0]))
    finally:
        for handle in handles:
            handle.remove()
    return alike


@contextmanager
def _as_identity(module: nn.Module) -> Iterator[None]:
    handle = module.register_forward_hook(lambda _module, args, _output: args[0])
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _other_norm(norms: list[Any]) -> Iterator[None]:
    def by_example(module: Any, args: Any, _output: Any) -> Any:
        x: Tensor = args[0]
        dims = tuple(range(1, x.dim()))
        plain = (x - x.mean(dims, keepdim=True)) / (x.var(dims, keepdim=True, unbiased=False) + module.eps).sqrt()
        shape = (1, -1, *([1] * (x.dim() - 2)))
        if module.weight is None:
            return plain
        return plain * module.weight.view(shape) + module.bias.view(shape)

    with ExitStack() as stack:
        for norm in norms:
            stack.callback(norm.register_forward_hook(by_example).remove)
        yield


def _is_rotary(name: str, module: nn.Module) -> bool:
    return "rotary" in (name.rpartition(".")[2] + type(module).__name__).lower() and not list(module.children())


@contextmanager
def _without_rotary(modules: list[nn.Module]) -> Iterator[None]:
    """Set rotary angles to zero (cos 1, sin 0); a module that rotates its input returns it unchanged."""

    def still(_module: Any, args: Any, output: Any) -> Any:
        if isinstance(output, tuple) and len(output) == 2 and all(isinstance(each, Tensor) for each in output):
            if args and isinstance(args[0], Tensor) and args[0].shape == output[0].shape and len(args) > 1:
                return args[:2]
            return torch.ones_like(output[0]), torch.zeros_like(output[1])
        return args[0] if args and isinstance(args[0], Tensor) and args[0].shape == output.shape else output

    with ExitStack() as stack:
        for module in modules:
            stack.callback(module.register_forward_hook(still).remove)
        yield
