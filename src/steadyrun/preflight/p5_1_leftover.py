"""P5.1: are gradients empty when backward begins, and there when the optimizer steps?"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from steadyrun.questions.form import FAULT, PASS, Finding, Limits, Outcome, Question
from steadyrun.signals.missing import NotApplicable
from steadyrun.text import counted, listed

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench
    from steadyrun.preflight.step_trace import StepTrace


def find(bench: Bench, _limit: Limits) -> Finding:
    assert bench.train_step is not None
    from steadyrun.preflight.rehearsal import rehearsal

    made = rehearsal(bench)
    if erased := _erased(made.first):
        lost = _names_of(bench, erased)
        return Finding(
            "erased",
            f"{counted(len(erased), 'parameter')} with a gradient after backward and none at the step: {listed(lost)}.",
            {"erased": float(len(erased))},
        )
    if made.first.closure or made.second.closure:
        raise NotApplicable("the optimizer calls backward itself")
    if not made.first.stepped or not made.second.stepped:
        raise NotApplicable("no optimizer steps on every call: gradients are kept on purpose, or a step was skipped")
    measured = {"left": float(len(made.left)), "carried": float(len(made.carried))}
    if made.carried:
        lost = _names_of(bench, made.carried)
        return Finding(
            "carried",
            f"the gradient of the first step is still in that of the second, in "
            f"{counted(len(made.carried), 'parameter')}: {listed(lost)}.",
            measured,
        )
    if made.left:
        return Finding(
            "pass", f"{len(made.left)} gradients stay after a step, and are cleared before the next.", measured
        )
    return Finding("pass", "a step leaves no gradients behind.", measured)


def _names_of(bench: Bench, keys: Collection[int]) -> list[str]:
    """Names in the order of the model, then what is not in it."""
    names = {id(parameter): name for name, parameter in bench.parameters.items()}
    return [name for key, name in names.items() if key in keys] + ["another tensor" for key in keys if key not in names]


def _erased(trace: StepTrace) -> list[int]:
    """What got a gradient and had none at the step, where that is so for everything the optimizer holds."""
    from steadyrun.preflight.step_trace import STEP, any_number

    for event in trace.events:
        if event.kind != STEP or trace.closure:
            continue
        arrived = event.members & trace.arrived
        here = {key for key in event.members if key in trace.gradients and any_number(trace.gradients[key])}
        if arrived and not here:
            return sorted(arrived)
    return []


QUESTION = Question(
    code="P5.1",
    name="gradients are cleared",
    asks="Is the gradient of one step gone when the next one's backward begins, and not before the optimizer steps?",
    why="backward adds to what is there. Without zero_grad every update is the sum of all gradients so far; with "
    "zero_grad between backward and step there is nothing to step on.",
    needs=("train_step", "optimizer", "batches"),
    panel=None,
    thresholds=(),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="gradients are cleared between steps"),
        Outcome(
            name="carried",
            answer=FAULT,
            meaning="every update contains the gradients of all steps before it",
            fix="Call optimizer.zero_grad() once per step, before backward or after optimizer.step().",
            explains=("C3", "C4", "S", "P6"),
        ),
        Outcome(
            name="erased",
            answer=FAULT,
            meaning="gradients are cleared before the optimizer uses them",
            fix="Move zero_grad() before backward(), or behind optimizer.step().",
            explains=("C4", "S", "P6"),
        ),
    ),
    find=find,
)
