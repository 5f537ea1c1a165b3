"""The layers of a model as one forward pass calls them: in which order, and what they give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from steadyrun.preflight.bench import Bench
from steadyrun.probes.activations import first_float
from steadyrun.program.model_parts import clean

LayerHook = Callable[[str, nn.Module, Any, Any], None]
"""Called after every layer: its name, itself, what it took, what it gave."""


def run_over_layers(bench: Bench, batch: Any, hook: LayerHook, *, training: bool = False) -> Tensor | None:
    """One forward pass without gradients, with every layer looked at; the scores of the model's call."""
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
    """The layers with weights in the order they were first called, the scores, and what each gave; made once."""
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
    """The layer whose output is the model's scores; None where something else makes them."""
    order, scores, outputs = call_order(bench)
    if scores is None:
        return None
    for name, module in reversed(order):
        output = outputs[name]
        if output.data_ptr() == scores.data_ptr() and output.numel() >= scores.numel():
            return name, module
    return None
