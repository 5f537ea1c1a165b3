"""A4.1, before training: is every trainable parameter in an optimizer?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from steadyrun.preflight.same_cause import probe_of, same
from steadyrun.questions.audits.a4_1_not_optimized import QUESTION as RECORDED
from steadyrun.questions.form import NOTE, Finding, Limits, Outcome
from steadyrun.signals.missing import MissingSignal
from steadyrun.text import counted, listed

if TYPE_CHECKING:
    from torch import Tensor

    from steadyrun.preflight.bench import Bench


def find(bench: Bench, _limit: Limits) -> Finding:
    tensors = bench.optimized
    if not tensors:
        raise MissingSignal("optimizer", "preflight has no optimizer", "give preflight the optimizer")
    optimized = {id(tensor) for tensor in tensors}
    first = bench.first_pass()
    missing = {
        name: parameter
        for name, parameter in bench.parameters.items()
        if parameter.requires_grad and id(parameter) not in optimized and name in first.gradients
    }
    strange = _stale(bench, list(missing.values()))
    names = listed(list(missing))
    measured = {"missing": float(len(missing)), "strange": float(len(strange))}
    if missing and _moved_by_others(bench, missing):
        return Finding("others", f"An optimizer that preflight does not know updates {names}.", measured)
    if missing and strange:
        return Finding(
            "stale",
            f"No optimizer has {counted(len(missing), 'parameter')} with a gradient ({names}). The optimizer has "
            f"{counted(len(strange), 'tensor')} of the same shapes that the model does not use.",
            measured,
        )
    if missing and bench.config.get("init") == "random":
        message = (
            f"No optimizer has {counted(len(missing), 'parameter')} with a gradient, randomly initialised: {names}."
        )
        return Finding("left-out", message, measured)
    if missing:
        message = f"No optimizer has {counted(len(missing), 'trainable parameter')} with a gradient: {names}."
        return Finding("not-optimized", message, measured)
    learning = sum(parameter.requires_grad for parameter in bench.parameters.values())
    return Finding("pass", f"The optimizers have all {counted(learning, 'trainable parameter')}.", measured)


def _stale(bench: Bench, missing: list[Tensor]) -> list[Tensor]:
    """Tensors of the optimizers that neither the model nor its loss uses, shaped like a missing parameter.

    Weights of a loss function or of another network do not count: the loss uses them.
    """
    shapes = {parameter.shape for parameter in missing}
    known = {id(tensor) for tensor in [*bench.parameters.values(), *bench.first_pass().graph.leaves]}
    return [tensor for tensor in bench.optimized if id(tensor) not in known and tensor.shape in shapes]


def _moved_by_others(bench: Bench, missing: Mapping[str, Tensor]) -> bool:
    """Whether the program's own step updates all of them."""
    import torch

    if bench.task.train_step is None:
        return False
    from steadyrun.preflight.rehearsal import step_input

    with bench.pristine():
        bench.modes(True)
        before = [parameter.detach().clone() for parameter in missing.values()]
        try:
            bench.own_step(step_input(bench, 0))
        except MissingSignal:
            return False
        return all(not torch.equal(parameter, then) for parameter, then in zip(missing.values(), before, strict=True))


_FIX = "Build the optimizer after the model is complete: torch.optim.…(model.parameters())."
_FOLLOWS = ("C4", "S", "P4", "P6")

QUESTION = probe_of(
    RECORDED,
    asks="Does an optimizer have every parameter that gets a gradient?",
    needs=("optimizer", "loss_fn", "batches"),
    outcomes=(
        same(RECORDED, "pass"),
        same(RECORDED, "stale", _FOLLOWS),
        same(RECORDED, "left-out", _FOLLOWS),
        same(RECORDED, "not-optimized"),
        Outcome(name="others", answer=NOTE, meaning="an optimizer that preflight does not know updates parameters"),
    ),
    find=find,
)
