"""Looks at every result of every operation, below autograd: forward, backward and the optimizer's own arithmetic."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from steadyrun.program.torch_compat import TorchDispatchMode
from steadyrun.replay.hunt.attribution import Before, ResultJudge
from steadyrun.replay.hunt.finite_range import bad_values, floating, measure
from steadyrun.replay.hunt.location import Locations, OperationLocation
from steadyrun.replay.hunt.operation_call import UNINITIALISED, OperationCall, describe
from steadyrun.replay.hunt.origins import Memory, Origin


class Checker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows non-finite numbers from result to result. Whatever fails in here is left out; the program goes on.

    `number` is the origin of the last NaN or infinity that was read as a Python number; `unscaled` tells that a loss
    scaler looked at the gradients.
    """

    supports_higher_order_operators = True

    def __init__(self, locations: Locations, memory: Memory) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._locations, self._memory, self._judge = locations, memory, ResultJudge(memory)
        self.resting = False
        self.number: Origin | None = None
        self.unscaled = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.resting:
            return func(*args, **kwargs)
        begun = self._before(func, args, kwargs)
        output = func(*args, **kwargs)
        if begun is not None:
            self._after(*begun, output)
        return output

    def _before(
        self, func: Any, args: Any, kwargs: Any
    ) -> tuple[OperationCall, OperationLocation, dict[int, Before]] | None:
        try:
            call = describe(func, args, kwargs)
            location = self._locations.here(call.name)
            return call, location, _overwritten(call)
        except Exception:
            return None

    def _after(self, call: OperationCall, location: OperationLocation, before: dict[int, Before], output: Any) -> None:
        try:
            self._note(call)
            if call.name in UNINITIALISED:
                for _, tensor in call.results(output):
                    self._memory.unfill(tensor, location)
            elif not call.signature.view:
                for item, tensor in call.results(output):
                    self._check(call, item, tensor, location, before)
        except Exception:
            return

    def _check(
        self, call: OperationCall, item: int, tensor: Tensor, location: OperationLocation, before: dict[int, Before]
    ) -> None:
        if not bad_values(tensor):
            self._memory.clean(tensor)
            return
        taint = self._judge.taint(call, item, tensor, location, before)
        self._memory.taint(tensor, taint)
        location.spoiled = taint.nan or taint.inf
        if location.spoiled is not None and (torch.is_grad_enabled() or location.stage == "backward"):
            self._memory.suspect = location.spoiled

    def _note(self, call: OperationCall) -> None:
        if call.name == "_amp_foreach_non_finite_check_and_unscale":
            self.unscaled = True
        elif call.name == "_local_scalar_dense" and (bad := bad_values(call.arguments["self"])):
            self.number = self._memory.taint_of(call.arguments["self"]).guilty(bad)


def _overwritten(call: OperationCall) -> dict[int, Before]:
    """The inputs that the operation is about to overwrite, measured while they are there."""
    written = {id(tensor) for _, tensor in call.written()}
    if not written:
        return {}
    overwritten: dict[int, Before] = {}
    for item in range(_items(call)):
        for name, value in call.inputs(item):
            if floating(value) and id(value) in written and id(value) not in overwritten:
                overwritten[id(value)] = Before(bad_values(value), measure(name, value))
    return overwritten


def _items(call: OperationCall) -> int:
    return max((item + 1 for item, _ in call.written()), default=0) if call.signature.by_item else 1
