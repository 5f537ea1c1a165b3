"""Inspect every result of every operation below autograd: forward, backward and the optimizer's arithmetic."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steadyrun.program.frames import callers
from steadyrun.program.torch_compat import SAVED, TorchDispatchMode
from steadyrun.replay.hunt.cause_rules import OperationEvidence, cause_of, softmax_like
from steadyrun.replay.hunt.culprit import Range
from steadyrun.replay.hunt.finite_range import Bad, bad_number, bad_values, dtype_name, floating, measure, worst
from steadyrun.replay.hunt.location import Locations, OperationLocation, is_custom
from steadyrun.replay.hunt.operation_call import UNINITIALISED, OperationCall, describe
from steadyrun.replay.hunt.origins import Memory, Origin, Taint, earliest

# The origin of the non-finite values in a result: this operation, one of its inputs, or the program's intent.


# An infinity from one of these is intended by the program.
_FILLS = frozenset(
    {"full", "full_like", "new_full", "scalar_tensor", "fill", "masked_fill", "index_fill", "constant_pad_nd", "where"}
)
# With these an infinite result needs an infinite input of the same sign, or is new.
_KEEPS_SIGN = frozenset(
    {"add", "baddbmm", "addmm", "bmm", "mm", "where", "masked_fill", "cat", "copy", "clone", "_to_copy"}
)
_ELEMENTWISE = frozenset({"mul", "div", "add", "sub", "rsub", "addcmul", "addcdiv", "xlogy", "lerp", "pow", "exp"})
# Over a row of minus infinities these return minus infinity, which the program did not intend.
_LOG_SUMS = frozenset({"logsumexp", "logcumsumexp"})


@dataclass(frozen=True)
class Before:
    """An input that the operation has overwritten, with its former values."""

    bad: Bad
    range: Range


@dataclass(frozen=True)
class InputSource:
    """An input that is not finite."""

    bad: Bad
    taint: Taint


class ResultJudge:
    """Judges one result at a time; `before` holds the overwritten inputs, by the id of their tensor."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def taint(
        self, call: OperationCall, item: int, result: Tensor, location: OperationLocation, before: dict[int, Before]
    ) -> Taint:
        """The origins of the non-finite values in a result."""
        bad = bad_values(result)
        inputs = list(call.inputs(item))
        sources = [
            source
            for name, value in inputs
            if isinstance(value, Tensor) and (source := self._source(value, name, location, before)) is not None
        ]
        taint = Taint()

        def new(*, masked: bool = False, kind: Bad = bad) -> Origin:
            return _new_origin(call, inputs, kind, result, location, before, masked)

        if bad & Bad.NAN:
            taint.nan = _nan_origin(call, sources, location) or new(masked=any(source.taint.mask for source in sources))
        if bad & Bad.INF:
            taint.inf, taint.mask = _inf_origins(call, bad, sources)
            if taint.inf is None and taint.mask is not None and call.name in _LOG_SUMS:
                taint.inf, taint.mask = new(masked=True, kind=bad & Bad.INF), None
            elif taint.inf is None and taint.mask is None:
                origin = new(kind=bad & Bad.INF)
                taint.inf, taint.mask = (None, origin) if origin.deliberate else (origin, None)
        return taint

    def _source(
        self, tensor: Tensor, name: str, location: OperationLocation, before: dict[int, Before]
    ) -> InputSource | None:
        overwritten = before.get(id(tensor))
        bad = overwritten.bad if overwritten is not None else bad_values(tensor)
        if not bad:
            return None
        taint = self._memory.taint_of(tensor)
        known = (taint.nan is not None or not bad & Bad.NAN) and (taint.inf or taint.mask or not bad & Bad.INF)
        if not known:
            taint = self._from_outside(tensor, bad, name, location, taint)
            self._memory.taint(tensor, taint)
        if not bad & Bad.INF:  # the memory holds infinities elsewhere
            taint = Taint(taint.nan)
        return InputSource(bad, taint)

    def _from_outside(self, tensor: Tensor, bad: Bad, name: str, location: OperationLocation, known: Taint) -> Taint:
        """A tensor made before the step, or by code that torch does not see; its infinities count as intended.

        Memory that torch did not see being filled was most likely filled by a custom kernel, which got the suspect
        value if there is one.
        """
        made = self._memory.unfilled(tensor)
        if made is not None and (origin := self._memory.suspect) is not None:
            return Taint(known.nan or origin, known.inf or origin, known.mask)
        where = made or OperationLocation("data", "", "", location.operation, location.where, location.passes)
        cause = "uninitialised-memory" if made else "non-finite-input"
        origin = Origin(where, cause, bad, dtype_name(tensor.dtype), (measure(name, tensor),), deliberate=not made)
        nan = known.nan or (origin if bad & Bad.NAN else None)
        mask = known.mask or (origin if bad & Bad.INF and not known.inf else None)
        return Taint(nan, known.inf, mask)


def _nan_origin(call: OperationCall, sources: list[InputSource], location: OperationLocation) -> Origin | None:
    """The origin of a NaN that came with the inputs, as NaN or as an unintended infinity."""
    nan = earliest(source.taint.nan for source in sources if source.bad & Bad.NAN)
    if nan is not None:
        return nan
    unwanted = earliest(source.taint.inf for source in sources)
    masks = [source for source in sources if source.taint.mask]
    if unwanted is not None and not (
        masks and softmax_like(call.name) and not any(source.bad & Bad.UP for source in sources)
    ):
        return unwanted
    mask = earliest(source.taint.mask for source in sources)
    if mask is None or softmax_like(call.name, location.operation):
        return None
    # If an intended infinity meets a zero or its opposite, that line is at fault; if it reaches a matrix
    # multiplication or a normalisation, the line that inserted it is at fault.
    return None if call.name in _ELEMENTWISE and mask.location.stage != "data" else mask


def _inf_origins(call: OperationCall, bad: Bad, sources: list[InputSource]) -> tuple[Origin | None, Origin | None]:
    if call.name in _KEEPS_SIGN and bad & Bad.UP and not any(source.bad & (Bad.UP | Bad.NAN) for source in sources):
        return None, None
    return earliest(source.taint.inf for source in sources), earliest(source.taint.mask for source in sources)


def _new_origin(
    call: OperationCall,
    inputs: list[tuple[str, Any]],
    bad: Bad,
    result: Tensor,
    location: OperationLocation,
    before: dict[int, Before],
    masked: bool,
) -> Origin:
    ranges = tuple(_range(name, value, before) for name, value in inputs)
    evidence = OperationEvidence(
        operation=call.name,
        value=worst(bad),
        dtype=dtype_name(result.dtype),
        inputs=ranges,
        derived=location.operation if location.node is not None else "",
        custom=is_custom(location.node),
        spoiled=location.source is not None and location.source.spoiled is not None,
        masked=masked,
        updating=location.stage == "update",
    )
    numbers = [value for _, value in inputs if isinstance(value, int | float)]
    meant = call.name in _FILLS or any(bad_number(value) for value in numbers)
    return Origin(
        location=location,
        cause=cause_of(evidence),
        bad=bad,
        dtype=evidence.dtype,
        inputs=_saved(location.node) or ranges,
        deliberate=meant and not bad & Bad.NAN and location.stage != "update",
        scaling=_in_scaler(),
    )


def _range(name: str, value: Any, before: dict[int, Before]) -> Range:
    overwritten = before.get(id(value))
    return overwritten.range if overwritten is not None else measure(name, value)


def _saved(node: Any) -> tuple[Range, ...]:
    """The tensors that a node's forward operation saved: its inputs or its result."""
    ranges = []
    for name in dir(node) if node is not None else ():
        if name.startswith(SAVED):
            try:
                value = getattr(node, name)
            except Exception:  # freed, or saved elsewhere by checkpointing
                continue
            if floating(value) or isinstance(value, float):
                ranges.append(measure(name.removeprefix(SAVED), value))
    return tuple(ranges)


def _in_scaler() -> bool:
    return any(frame.f_code.co_filename.endswith("grad_scaler.py") for frame in callers(sys._getframe(1)))


class Checker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows non-finite values from result to result. An error in here is ignored, so that the program continues.

    `number` is the origin of the last NaN or infinity that was read as a Python number; `unscaled` means that a loss
    scaler inspected the gradients.
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
    """The inputs that the operation is about to overwrite, measured before it does."""
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
