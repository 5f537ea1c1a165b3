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
        raise MissingSignal("optimizer", "there is no optimizer", "give preflight the optimizer")
    names = {id(parameter): name for name, parameter in bench.parameters.items()}
    holders: dict[int, list[int]] = {}
    for index, optimizer in enumerate(bench.task.optimizers):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                holders.setdefault(id(parameter), []).append(index)
    within = [key for key, indices in holders.items() if len(set(indices)) < len(indices)]
    across = [key for key, indices in holders.items() if len(set(indices)) > 1]
    measured = {"within": float(len(within)), "across": float(len(across))}
    affected = [names.get(key, "a tensor that is not in the model") for key in within or across]
    if within:
        return Finding(
            "twice",
            f"{counted(len(within), 'parameter')} more than once in one optimizer: {listed(affected)}.",
            measured,
        )
    if across and (same := _same_gradient(bench, across)):
        message = (
            f"{counted(same, 'parameter')} in several optimizers that step on the same gradient: {listed(affected)}."
        )
        return Finding("two-steps", message, measured)
    if across:
        return Finding(
            "shared", f"{counted(len(across), 'parameter')} in several optimizers: {listed(affected)}.", measured
        )
    return Finding("pass", f"each of the {len(holders)} tensors in optimizers is there once.", measured)


def _same_gradient(bench: Bench, shared: list[int]) -> int:
    """How many are stepped twice in one step of the program without a backward pass between."""
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
    name="parameters once",
    asks="Is a parameter twice in an optimizer, or in several optimizers?",
    why="It moves twice in every step, with a learning rate that nobody set.",
    needs=("optimizer",),
    panel=None,
    thresholds=(),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="every parameter is held once"),
        Outcome(
            name="twice",
            answer=FAULT,
            meaning="an optimizer moves a parameter twice in each step",
            fix="Put every parameter into one param group once.",
            explains=("C3", "S"),
        ),
        Outcome(
            name="two-steps",
            answer=FAULT,
            meaning="several optimizers move the same parameters by the same gradient",
            fix="Give every parameter to one optimizer, or clear gradients and call backward between their steps.",
            explains=("C3", "S"),
        ),
        Outcome(
            name="shared",
            answer=NOTE,
            meaning="several optimizers hold the same parameters: meant where each has its own loss",
        ),
    ),
    find=find,
    tried=True,
)
