"""P4.1: is every trainable parameter in an optimizer?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.preflight.words import listed
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question
from steadyrun.signals.run import MissingSignal

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench


def find(bench: Bench, _limit: Limits) -> Finding:
    held = bench.optimized
    if not held:
        raise MissingSignal("optimizer", "there is no optimizer", "give preflight the optimizer")
    optimized = {id(each) for each in held}
    mine = {id(each) for each in bench.parameters.values()}
    gradients = bench.first_pass().gradients
    missing = [
        name
        for name, each in bench.parameters.items()
        if each.requires_grad and id(each) not in optimized and name in gradients
    ]
    strange = [each for each in held if id(each) not in mine]
    measured = {"missing": float(len(missing)), "strange": float(len(strange))}
    if missing and strange:
        return Finding(
            "stale",
            f"{len(missing)} trainable parameters get a gradient and are in no optimizer ({listed(missing)}); the "
            f"optimizer holds {len(strange)} tensors that are not in the model.",
            measured,
        )
    if missing and bench.config.get("init") == "random":
        message = f"the model starts from random weights, and {listed(missing)} get gradients but are in no optimizer."
        return Finding("left-out", message, measured)
    if missing:
        message = f"{len(missing)} trainable parameters get a gradient and are in no optimizer: {listed(missing)}."
        return Finding("not-optimized", message, measured)
    return Finding("pass", f"each of the {len(bench.parameters)} parameters that learn is in an optimizer.", measured)


_FIX = "Build the optimizer after the model is complete: torch.optim.…(model.parameters())."
_FOLLOWS = ("C4", "S", "P4", "P6")

QUESTION = Question(
    code="P4.1",
    name="parameters in the optimizer",
    asks="Is every parameter that gets a gradient in an optimizer?",
    why="What the optimizer does not hold never moves. It happens when a layer is replaced, or the model moved to "
    "another dtype, after the optimizer was built: the optimizer keeps the tensors of before.",
    needs=("optimizer", "loss_fn", "batches"),
    panel=None,
    thresholds=(),
    outcomes=(
        Outcome("pass", PASS, "the optimizer holds every parameter that learns"),
        Outcome("stale", FAULT, "the optimizer holds tensors of a model that was", _FIX, explains=_FOLLOWS),
        Outcome("left-out", FAULT, "random weights that nothing will ever move", _FIX, explains=_FOLLOWS),
        Outcome("not-optimized", NOTE, "nothing moves these; where that is meant, freeze them", _FIX),
    ),
    find=find,
)
