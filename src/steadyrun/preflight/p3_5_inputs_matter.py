"""P3.5: do the outputs depend on the inputs?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.text import shown

if TYPE_CHECKING:
    from torch import Tensor

    from steadyrun.preflight.bench import Bench
    from steadyrun.preflight.forward_pass import Edit

_NUDGES = 3  # small steps, after which layers initialised with zeros have weights


def find(bench: Bench, limit: Limits) -> Finding:
    from steadyrun.preflight.input_edits import opaque

    batch = bench.batch()
    if not bench.first_pass().calls:
        why, how = "loss_fn does not call the model", "let loss_fn(model, batch) call model(…)"
        raise MissingSignal("the model's call", why, how)
    call = bench.first_pass().calls[0]
    if opaque((call.args, call.kwargs)):
        why = "the model's inputs are custom objects that preflight cannot change"
        raise MissingSignal("the model's inputs", why, "let loss_fn call model(…) with tensors, lists or dicts of them")
    if not _has_inputs(bench):
        raise NotApplicable("the model gets no tensor with more than one value")
    if not _depends(bench, batch):
        _nudge(bench, batch)
        if not _depends(bench, batch):
            message = (
                "Every output stays bit-identical with other rows and with zeros as inputs, "
                f"also after {_NUDGES} small steps."
            )
            return Finding("inputs-ignored", message, {"change": 0.0})
    if not bench.deep or not bench.first_pass().gradients:
        return Finding("pass", "Outputs change with the inputs.")
    return _trained(bench, batch, limit)


def _has_inputs(bench: Bench) -> bool:
    """Whether the model has an input to change, one that is not constant."""
    from steadyrun.preflight.batch_arrays import as_numpy
    from steadyrun.preflight.input_edits import tensors_in

    call = bench.first_pass().calls[0]
    arrays = [as_numpy(tensor) for tensor in tensors_in((call.args, call.kwargs))]
    return any(array is None or (array.size > 1 and bool((array != array.flat[0]).any())) for array in arrays)


def _depends(bench: Bench, batch: Any) -> bool:
    """Whether any output, or the loss, changes with the inputs or fails on changed ones."""
    import torch

    from steadyrun.preflight.input_edits import editing, emptied, rolled

    before = _outputs(bench, batch, None)
    for change in (rolled, emptied):
        try:
            after = _outputs(bench, batch, editing(change))
        except MissingSignal:
            return True
        if len(before) != len(after) or not all(map(torch.equal, before, after)):
            return True
    return False


def _outputs(bench: Bench, batch: Any, edit: Edit | None) -> list[Tensor]:
    """Every output tensor of the model's first call, and the loss, in evaluation mode with the same draws."""
    import torch

    from steadyrun.preflight.input_edits import tensors_in

    with bench.pristine(), torch.no_grad(), bench.calls(edit) as calls:
        bench.reseed()
        bench.modes(False)
        loss = bench.loss(batch)
    outputs = list(tensors_in(calls[0].output)) if calls else []
    scores = calls[0].scores if calls else None
    return [*outputs, *([] if scores is None else [scores]), loss]


def _nudge(bench: Bench, batch: Any) -> None:
    """Take small steps along the gradient, regardless of the learning rate; the bench undoes them."""
    import torch

    for _ in range(_NUDGES):
        gradients = bench.observe(batch, backward=True).gradients
        with torch.no_grad():
            for name, parameter in bench.parameters.items():
                if name in gradients:
                    gradient = gradients[name]
                    parameter.sub_(0.01 * gradient / gradient.abs().max().clamp(min=1e-12))


def _trained(bench: Bench, batch: Any, limit: Limits) -> Finding:
    """The finding after some steps on one batch: its loss should be higher with the inputs of other rows."""
    from steadyrun.preflight.input_edits import rolled_inputs

    with bench.pristine():
        first = _quiet_loss(bench, batch, None)
        bench.modes(True)
        for _ in range(int(limit["steps"])):
            bench.own_step(batch)
        mine = _quiet_loss(bench, batch, None)
        others = _quiet_loss(bench, batch, rolled_inputs)
    measured = {"first": first, "loss": mine, "loss_with_other_inputs": others}
    facts = (
        f"In {limit['steps']:g} steps on one batch its loss goes from {shown(first)} to {shown(mine)}; with the inputs "
        f"of other rows it is {shown(others)}"
    )
    apart = abs(others - mine) > 1e-5 * mine  # rows with equal labels are interchangeable
    if 0 < mine < (1 - limit["learned"]) * first and others <= mine and apart:
        return Finding("not-used-yet", f"{facts}.", measured)
    return Finding("pass", f"Outputs change with the inputs. {facts}.", measured)


def _quiet_loss(bench: Bench, batch: Any, edit: Edit | None) -> float:
    import torch

    with bench.pristine(), torch.no_grad(), bench.calls(edit):
        bench.reseed()
        bench.modes(False)
        return float(bench.loss(batch))


QUESTION = Question(
    code="P3.5",
    name="inputs matter",
    asks="Do the model's outputs change with its inputs?",
    why="The loss falls even if the model ignores its inputs (dead units, an overwritten variable, a mask over "
    "everything): it learns the class frequencies.",
    needs=("loss_fn", "batches"),
    panel=None,
    thresholds=(
        Threshold(
            name="steps",
            value=20,
            unit="steps",
            meaning="steps on one batch before other inputs are tried (--deep)",
            seed="",
            decision="enough for most models to distinguish the rows; earlier the loss falls for all inputs alike",
        ),
        Threshold(
            name="learned",
            value=0.2,
            unit="fraction of the first loss",
            meaning="fall of the loss before other inputs are tried (--deep)",
            seed="",
            decision="up to there healthy models learn the class frequencies before they learn from the inputs",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="outputs change with the inputs"),
        Outcome(
            name="not-used-yet",
            answer=NOTE,
            meaning="the model learns little from its inputs so far",
        ),
        Outcome(
            name="inputs-ignored",
            answer=FAULT,
            meaning="the outputs do not depend on the inputs",
            fix="Follow an input through forward(): look for an overwritten variable, a mask over everything, or dead "
            "units.",
            explains=("C3", "C4", "C5", "S1", "P4", "P6.1", "P6.5"),
        ),
    ),
    find=find,
    tried=True,
)
