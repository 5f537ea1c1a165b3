"""The layers of a model as one forward pass calls them: in which order, and what they give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from steadyrun.preflight.bench import Bench
from steadyrun.probes.activations import first_float
from steadyrun.program.model_parts import clean

Looker = Callable[[str, nn.Module, Any, Any], None]
"""Called after every layer: its name, itself, what it took, what it gave."""


def looked_at(bench: Bench, batch: Any, look: Looker, *, training: bool = False) -> Tensor | None:
    """One forward pass without gradients, with every layer looked at; the scores of the model's call."""
    names = {id(module): clean(path) for path, module in bench.model.named_modules()}

    def after(module: nn.Module, args: Any, output: Any) -> None:
        look(names[id(module)], module, args, output)

    with bench.pristine():
        bench.reseed()
        bench.modes(training)
        handles = [each.register_forward_hook(after) for each in bench.model.modules() if not list(each.children())]
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
        given: dict[str, Tensor] = {}

        def look(name: str, module: nn.Module, _args: Any, output: Any) -> None:
            tensor = first_float(output)
            if tensor is not None and not tensor.is_nested and list(module.parameters(recurse=False)):
                order.setdefault(name, module)
                given[name] = tensor.detach()

        scores = looked_at(bench, bench.batch(), look)
        bench.memo["call order"] = (list(order.items()), scores, given)
    made: tuple[list[tuple[str, nn.Module]], Tensor | None, dict[str, Tensor]] = bench.memo["call order"]
    return made


def output_layer(bench: Bench) -> tuple[str, nn.Module] | None:
    """The layer whose output is the model's scores; None where something else makes them."""
    order, scores, given = call_order(bench)
    if scores is None:
        return None
    for name, module in reversed(order):
        held = given[name]
        if held.data_ptr() == scores.data_ptr() and held.numel() >= scores.numel():
            return name, module
    return None
