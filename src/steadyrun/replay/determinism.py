"""The same step twice from the same state: what differs between the two has no cause in what was captured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from steadyrun.probes.activations import floats_in
from steadyrun.probes.batch_hashes import input_hash
from steadyrun.program.model_parts import clean, unwrapped
from steadyrun.replay.compare import ReplayDifference


@dataclass
class Trace:
    """What went into the model, what each module gave, and the loss."""

    inputs: int | None = None
    outputs: list[tuple[str, Tensor]] = field(default_factory=list)
    loss: float = float("nan")


def nondeterminism(
    model: nn.Module, execute: Callable[[], Any], restore: Callable[[], None]
) -> ReplayDifference | None:
    """Execute a step twice; a difference that names the first module whose output is not the same."""
    first, second = _traced(model, execute, restore), _traced(model, execute, restore)
    if first.inputs != second.inputs:
        return ReplayDifference(
            "data",
            "two executions of the same step give the model different inputs: randomness in the data path that is not "
            "from the global generators of torch, numpy and random",
        )
    for (name, one), (_, two) in zip(first.outputs, second.outputs, strict=False):
        if one.shape != two.shape or not torch.equal(torch.nan_to_num(one), torch.nan_to_num(two)):
            return ReplayDifference(
                "nondeterminism",
                f"two executions of the same step differ, first in the output of {name or 'the model'}: an operation "
                "there is not deterministic, draws from a random generator of its own, or keeps something from one "
                "call to the next",
            )
    if first.loss != second.loss and not (first.loss != first.loss and second.loss != second.loss):
        return ReplayDifference(
            "nondeterminism",
            "two executions of the same step give different losses from equal outputs: the loss function counts, keeps "
            "something from one call to the next, or draws from a random generator of its own",
        )
    return None


def _traced(model: nn.Module, execute: Callable[[], Any], restore: Callable[[], None]) -> Trace:
    trace = Trace()
    names = {id(module): clean(name) for name, module in unwrapped(model).named_modules()}

    def entered(module: nn.Module, args: Any) -> None:
        if id(module) in names and trace.inputs is None:
            trace.inputs = _number(input_hash(args))

    def left(module: nn.Module, _args: Any, output: Any) -> None:
        if id(module) in names:
            trace.outputs += [(names[id(module)], tensor.detach().clone()) for tensor in floats_in(output)]

    restore()
    handles = [register_module_forward_pre_hook(entered), register_module_forward_hook(left)]
    try:
        trace.loss = float(execute())
    finally:
        for handle in handles:
            handle.remove()
    return trace


def _number(value: Any) -> int | None:
    return None if value is None else int(value)
