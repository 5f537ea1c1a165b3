"""The layers of a model in the order of a forward pass, and the activity of their hidden units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from steadyrun.preflight.bench import Bench
from steadyrun.probes.dead_units import SILENT_BELOW, UnitsTap, find_units
from steadyrun.probes.float_tensors import first_float
from steadyrun.program.model_parts import clean, find_blocks

# The layers of a model in the order of one forward pass, with their outputs.


LayerHook = Callable[[str, nn.Module, Any, Any], None]
"""Called after every layer: its name, the module, its inputs, its output."""


def run_over_layers(bench: Bench, batch: Any, hook: LayerHook, *, training: bool = False) -> Tensor | None:
    """Run one forward pass without gradients, with a hook on every layer; returns the scores."""
    names = {id(module): clean(path) for path, module in bench.model.named_modules()}

    def after(module: nn.Module, args: Any, output: Any) -> None:
        hook(names[id(module)], module, args, output)

    with bench.pristine():
        bench.reseed()
        bench.modes(training)
        handles = [
            module.register_forward_hook(after) for module in bench.model.modules() if not list(module.children())
        ]
        try:
            with bench.without_gradients(), bench.calls() as calls:
                bench.loss(batch)
        finally:
            for handle in handles:
                handle.remove()
    return calls[0].scores if calls else None


def call_order(bench: Bench) -> tuple[list[tuple[str, nn.Module]], Tensor | None, dict[str, Tensor]]:
    """The layers with weights in the order of their first calls, the scores, and the outputs; computed once."""
    if "call order" not in bench.memo:
        order: dict[str, nn.Module] = {}
        outputs: dict[str, Tensor] = {}

        def note(name: str, module: nn.Module, _args: Any, output: Any) -> None:
            tensor = first_float(output)
            if tensor is not None and not tensor.is_nested and list(module.parameters(recurse=False)):
                order.setdefault(name, module)
                outputs[name] = tensor.detach()

        scores = run_over_layers(bench, bench.batch(), note)
        bench.memo["call order"] = (list(order.items()), scores, outputs)
    made: tuple[list[tuple[str, nn.Module]], Tensor | None, dict[str, Tensor]] = bench.memo["call order"]
    return made


def output_layer(bench: Bench) -> tuple[str, nn.Module] | None:
    """The layer whose output is the model's scores; None if no layer outputs them."""
    order, scores, outputs = call_order(bench)
    if scores is None:
        return None
    for name, module in reversed(order):
        output = outputs[name]
        if output.data_ptr() == scores.data_ptr() and output.numel() >= scores.numel():
            return name, module
    return None


# The activity of hidden units on the first batches: silent on all rows, or saturated.


BATCHES = 3
_RECTIFIERS = (nn.ReLU, nn.ReLU6)
_ENDS = 0.01


@dataclass(frozen=True)
class Units:
    """The activity of one layer's units over all rows."""

    name: str
    kind: str
    units: int
    rows: int
    dead: float  # fraction of units that are zero on all rows
    silent: float  # fraction of rows without any active unit
    saturated: float  # fraction of values at an end of the range of tanh or sigmoid
    rectified: bool


class _Counts:
    def __init__(self) -> None:
        self.active: Tensor | None = None
        self.rows = self.silent = self.numbers = self.ends = 0
        self.zeros = False

    def add(self, values: Tensor, kind: str) -> None:
        awake = values.abs() >= SILENT_BELOW
        self.active = awake.any(0) if self.active is None else self.active | awake.any(0)
        self.rows += values.shape[0]
        self.silent += int((~awake.any(1)).sum())
        self.numbers += values.numel()
        self.zeros |= bool((values == 0).any()) and not bool((values < 0).any())
        high, low = (1.0, -1.0) if kind == "Tanh" else (1.0, 0.0)
        self.ends += int(((values > high - _ENDS) | (values < low + _ENDS)).sum())


def activity(bench: Bench) -> list[Units]:
    """The activity of every layer on a few batches in evaluation mode; computed once."""
    if "units" not in bench.memo:
        bench.memo["units"] = _measured(bench)
    made: list[Units] = bench.memo["units"]
    return made


def _measured(bench: Bench) -> list[Units]:
    taps = {id(tap.module): tap for tap in find_units(bench.model, find_blocks(bench.model))}
    for path, module in bench.model.named_modules():
        if isinstance(module, nn.Tanh | nn.Sigmoid | nn.ReLU | nn.ReLU6):
            taps.setdefault(id(module), UnitsTap(path, module, input=False))
    counts: dict[str, tuple[UnitsTap, _Counts]] = {}

    def before(module: nn.Module, args: Any) -> None:
        if taps[id(module)].input:
            note(module, args)

    def after(module: nn.Module, _args: Any, output: Any) -> None:
        if not taps[id(module)].input:
            note(module, output)

    def note(module: nn.Module, activation: Any) -> None:
        tap, tensor = taps[id(module)], first_float(activation)
        if tensor is not None and not tensor.is_nested and tensor.dim() >= 2:
            _, layer_counts = counts.setdefault(tap.name, (tap, _Counts()))
            values = _rows(tensor)
            if layer_counts.active is None or layer_counts.active.shape[0] == values.shape[1]:
                layer_counts.add(values, type(module).__name__)

    with bench.pristine():
        bench.modes(False)
        handles = [handle for tap in taps.values() for handle in _hooks(tap.module, before, after)]
        try:
            with bench.without_gradients():
                for index in range(min(BATCHES, len(bench.batches))):
                    bench.loss(bench.batch(index))
        finally:
            for handle in handles:
                handle.remove()
    return [
        _units(tap, layer_counts)
        for tap, layer_counts in counts.values()
        if layer_counts.active is not None and layer_counts.rows
    ]


def _hooks(module: nn.Module, before: Any, after: Any) -> list[Any]:
    return [module.register_forward_pre_hook(before), module.register_forward_hook(after)]


def _rows(tensor: Tensor) -> Tensor:
    """One row per position; in images (four dimensions and more) a unit is a channel."""
    values = tensor.detach()
    if values.dim() >= 4:
        values = values.movedim(1, -1)
    return values.reshape(-1, values.shape[-1])


def _units(tap: UnitsTap, counts: _Counts) -> Units:
    assert counts.active is not None
    count = int(counts.active.shape[0])
    return Units(
        tap.name,
        type(tap.module).__name__,
        count,
        counts.rows,
        float((~counts.active).sum()) / count,
        counts.silent / counts.rows,
        counts.ends / max(1, counts.numbers),
        isinstance(tap.module, _RECTIFIERS) or (tap.input and counts.zeros),
    )
