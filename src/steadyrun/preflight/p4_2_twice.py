"""P4.2: is a parameter in the optimizers twice?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question
from steadyrun.signals.missing import MissingSignal
from steadyrun.text import counted, listed

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench


def find(bench: Bench, _limit: Limits) -> Finding:
    if not bench.optimized:
        raise MissingSignal("optimizer", "preflight has no optimizer", "give preflight the optimizer")
    names = {id(parameter): name for name, parameter in bench.parameters.items()}
    holders: dict[int, list[int]] = {}
    for index, optimizer in enumerate(bench.task.optimizers):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                holders.setdefault(id(parameter), []).append(index)
    within = [key for key, indices in holders.items() if len(set(indices)) < len(indices)]
    across = [key for key, indices in holders.items() if len(set(indices)) > 1]
    measured = {"within": float(len(within)), "across": float(len(across))}
    affected = [names.get(key, "a tensor outside the model") for key in within or across]
    if within:
        return Finding(
            "twice",
            f"One optimizer lists {counted(len(within), 'parameter')} more than once: {listed(affected)}.",
            measured,
        )
    if across and (same := _same_gradient(bench, across)):
        message = f"Several optimizers step {counted(same, 'parameter')} on the same gradient: {listed(affected)}."
        return Finding("two-steps", message, measured)
    if across:
        return Finding(
            "shared",
            f"Several optimizers have {counted(len(across), 'parameter')} in common: {listed(affected)}.",
            measured,
        )
    return Finding("pass", f"The optimizers list each of their {counted(len(holders), 'tensor')} once.", measured)


def _same_gradient(bench: Bench, shared: list[int]) -> int:
    """The number of parameters stepped twice in one step of the program without a backward pass between."""
    from steadyrun.preflight.rehearsal import rehearsal
    from steadyrun.preflight.step_trace import BACKWARD, STEP

    if bench.task.train_step is None:
        return 0
    fresh: dict[int, bool] = {}
    stepped_twice: set[int] = set()
    for event in rehearsal(bench).first.events:
        if event.kind == BACKWARD:
            fresh = dict.fromkeys(shared, True)
        elif event.kind == STEP:
            for key in event.members & set(shared):
                if not fresh.get(key, False) and key in fresh:
                    stepped_twice.add(key)
                fresh[key] = False
    return len(stepped_twice)


QUESTION = Question(
    code="P4.2",
    name="each parameter once in the optimizers",
    asks="Do the optimizers list a parameter twice?",
    why="Such a parameter gets two updates per step: its learning rate is not the one you set.",
    needs=("optimizer",),
    panel=None,
    thresholds=(),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the optimizers list every parameter once"),
        Outcome(
            name="twice",
            answer=FAULT,
            meaning="an optimizer updates a parameter twice per step",
            fix="Put every parameter into one param group once.",
            explains=("C3", "S"),
        ),
        Outcome(
            name="two-steps",
            answer=FAULT,
            meaning="several optimizers update the same parameters on one gradient",
            fix="Give every parameter to one optimizer, or clear gradients and call backward between their steps.",
            explains=("C3", "S"),
        ),
        Outcome(
            name="shared",
            answer=NOTE,
            meaning="several optimizers share parameters, as with separate losses",
        ),
    ),
    find=find,
    tried=True,
)
