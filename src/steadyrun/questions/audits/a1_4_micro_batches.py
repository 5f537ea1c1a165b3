"""A1.4: does every micro-batch of a step count?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.intent import in_a_row, objective, sampled
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals


def find(run: Signals, limit: Limits) -> Finding:
    backwards = run.maybe("backwards")
    passes = 1.0 if backwards is None else float(np.median(backwards.values))
    if passes < 2:
        raise NotApplicable("each step has one backward pass: nothing is accumulated")
    if objective(run).get("sides") != 1 or len({group.get("optimizer") for group in run.listed("param_groups")}) > 1:
        raise NotApplicable("several losses train several parts: each may clear the gradients of another")
    empty = sampled(run, "empty_starts")
    measured = {"passes": passes, "empty": float(np.median(empty.values))}
    first = in_a_row(empty.values >= 2, limit["samples"])
    if first is None:
        return Finding("pass", f"The gradients of {passes:g} backward passes per step add up.", measured)
    declared = run.declared("accumulation")
    words = f"{measured['empty']:g} of {passes:g} backward passes of a step start with empty gradients"
    if declared is not None and declared >= 2:
        message = f"{words}, but accumulation {declared:g} is declared."
        return Finding("erased", message, measured, empty.step_at(first))
    message = f"{words}: gradients were cleared before the optimizer used them."
    return Finding("perhaps-erased", message, measured, empty.step_at(first))


_FIX = "Call optimizer.zero_grad() once per step, after optimizer.step(), not before each backward()."

QUESTION = Question(
    code="A1.4",
    name="every micro-batch counts",
    asks="Do the gradients of a step's micro-batches add up?",
    why="zero_grad() before each backward pass erases the gradients of the earlier micro-batches: the effective batch "
    "is smaller than declared, and the learning rate does not fit it.",
    needs=("empty_starts", "backwards"),
    panel=3,
    thresholds=(
        Threshold(
            name="samples",
            value=3,
            unit="consecutive sampled steps",
            meaning="how many must show it",
            seed="",
            decision="three in a row are not an accident",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the gradients of all micro-batches add up"),
        Outcome(
            name="erased",
            answer=FAULT,
            meaning="only the last micro-batch of each step counts",
            fix=_FIX,
            explains=("C3", "C6.3", "C7", "D2", "S3", "V1"),
            proved=True,
        ),
        Outcome(
            name="perhaps-erased",
            answer=SUSPECT,
            meaning="only the last micro-batch of each step seems to count",
            fix=_FIX,
            experiment="Compare the gradient norm of a step with that of its last micro-batch alone. If they are "
            "equal, the other micro-batches are lost. A method such as SAM clears them on purpose.",
        ),
    ),
    find=find,
    always=True,
)
