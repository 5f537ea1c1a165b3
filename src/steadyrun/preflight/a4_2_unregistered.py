"""A4.2, before training: does the model use weights that are not registered?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.preflight.same_cause import probe_of, same
from steadyrun.questions.audits.a4_2_unregistered import QUESTION as RECORDED
from steadyrun.questions.form import NOTE, Finding, Limits, Outcome
from steadyrun.text import counted, listed

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench


def find(bench: Bench, _limit: Limits) -> Finding:
    from steadyrun.probes.gradient_reach import hidden_tensors

    known = {id(parameter) for parameter in bench.parameters.values()}
    optimized = {id(parameter) for parameter in bench.optimized}
    made, reached = _leaves(bench)
    hidden = {key: path for key, (path, _) in hidden_tensors(bench.model).items() if key in reached}
    lost = [path for key, path in hidden.items() if key in made and key not in optimized]
    measured = {"unregistered": float(len(hidden)), "lost": float(len(lost))}
    if lost:
        return Finding(
            "unregistered",
            f"The model's outputs use {counted(len(lost), 'tensor')} with a gradient outside model.parameters(): "
            f"{listed(lost)}.",
            measured,
        )
    if hidden:
        names = listed(list(hidden.values()))
        message = f"The loss uses {counted(len(hidden), 'tensor')} with a gradient outside model.parameters(): {names}."
        return Finding("outside", message, measured)
    return Finding(
        "pass",
        f"Every weight that the model uses is among its {counted(len(known), 'registered parameter')}.",
        measured,
    )


def _leaves(bench: Bench) -> tuple[set[int], set[int]]:
    """The leaf tensors of the model's outputs, and those of its loss, by id."""
    from steadyrun.preflight.input_edits import tensors_in
    from steadyrun.probes.loss_graph import leaves

    first = bench.first_pass()
    inputs = {id(tensor) for call in first.calls for tensor in tensors_in([call.args, call.kwargs])}
    outputs = [tensor for call in first.calls for tensor in tensors_in(call.output) if tensor.grad_fn is not None]
    made = {id(tensor) for output in outputs for tensor in leaves(output)} - inputs
    reached = {id(tensor) for tensor in first.graph.leaves} - inputs
    moved = _moved_by_others(bench)
    return made - moved, reached


def _moved_by_others(bench: Bench) -> set[int]:
    """Weights of optimizers that only the program's functions refer to."""
    from steadyrun.program.reachable_objects import reached

    optimizers = reached(bench.task).optimizers
    return {
        id(parameter) for optimizer in optimizers for group in optimizer.param_groups for parameter in group["params"]
    }


QUESTION = probe_of(
    RECORDED,
    asks="Do the model's outputs depend on weights that are not in model.parameters()?",
    needs=("loss_fn", "batches"),
    outcomes=(
        same(RECORDED, "pass"),
        same(RECORDED, "unregistered", ("C1", "C4", "S", "P3.7", "A8.1", "P4", "P5.4", "P5.6", "P6")),
        Outcome(name="outside", answer=NOTE, meaning="the loss uses weights outside model.parameters()"),
    ),
    find=find,
)
