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
        raise MissingSignal("optimizer", "there is no optimizer", "give preflight the optimizer")
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
        return Finding("others", f"moved by an optimizer that preflight does not know: {names}.", measured)
    if missing and strange:
        return Finding(
            "stale",
            f"{counted(len(missing), 'trainable parameter')} with a gradient in no optimizer ({names}); the "
            f"optimizer holds {counted(len(strange), 'tensor')} of the same shapes without gradient, not in the model.",
            measured,
        )
    if missing and bench.config.get("init") == "random":
        message = f"the model starts from random weights; with a gradient and in no optimizer: {names}."
        return Finding("left-out", message, measured)
    if missing:
        message = f"{counted(len(missing), 'trainable parameter')} with a gradient in no optimizer: {names}."
        return Finding("not-optimized", message, measured)
    learning = sum(parameter.requires_grad for parameter in bench.parameters.values())
    return Finding("pass", f"each of the {learning} parameters that learn is in an optimizer.", measured)


def _stale(bench: Bench, missing: list[Tensor]) -> list[Tensor]:
    """Tensors of the optimizers that the model and its loss know nothing of, shaped like a missing parameter.

    Weights of a loss function or another network are no such thing: the loss reaches them.
    """
    shapes = {parameter.shape for parameter in missing}
    known = {id(tensor) for tensor in [*bench.parameters.values(), *bench.first_pass().graph.leaves]}
    return [tensor for tensor in bench.optimized if id(tensor) not in known and tensor.shape in shapes]


def _moved_by_others(bench: Bench, missing: Mapping[str, Tensor]) -> bool:
    """Whether the program's own step moves them all the same."""
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
    asks="Is every parameter that gets a gradient in an optimizer?",
    needs=("optimizer", "loss_fn", "batches"),
    outcomes=(
        same(RECORDED, "pass"),
        same(RECORDED, "stale", _FOLLOWS),
        same(RECORDED, "left-out", _FOLLOWS),
        same(RECORDED, "not-optimized"),
        Outcome(name="others", answer=NOTE, meaning="another optimizer moves these; give preflight all of them"),
    ),
    find=find,
)
