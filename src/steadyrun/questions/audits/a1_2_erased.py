"""A1.2: are gradients there when the optimizer steps?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.curves import Floats
from steadyrun.signals.intent import count, in_a_row, reach, sampled
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals


def find(run: Signals, limit: Limits) -> Finding:
    used = sampled(run, "grad_norm_used")
    made = run.maybe("grad_norm")
    if made is None or not float(made.values.max()) > 0:
        raise NotApplicable("no backward pass gave a gradient that is not zero")
    facts = reach(run)
    if count(facts, "trained") <= count(facts, "unreached_count"):
        raise NotApplicable("the gradient reaches nothing that the optimizer holds")
    # A loss without a slope (all rewards of a batch alike) gives gradients that are zero: none were erased then.
    lost = (used.values == 0) & np.isin(used.steps, _made(run))
    empty = int(np.sum(lost))
    measured = {"steps": float(len(used)), "empty": float(empty)}
    first = in_a_row(lost, limit["steps"])
    if first is not None:
        return Finding(
            "erased",
            f"backward gave gradients (norm {made.values[0]:.4g} at step {made.step_at(0)}), and in {empty} of "
            f"{len(used)} sampled steps the optimizer found none.",
            measured,
            used.step_at(first),
        )
    return Finding("pass", f"the optimizer found gradients in {len(used) - empty} of {len(used)} steps.", measured)


def _made(run: Signals) -> Floats:
    """The steps in which backward gave a gradient that is not zero: the global norm says so, or that of a block."""
    norms = [run.maybe(name) for name in ("grad_norm", *run.matching("block_grad_norm/*"))]
    return np.concatenate([points.steps[points.values > 0] for points in norms if points is not None])


QUESTION = Question(
    code="A1.2",
    name="gradients reach the optimizer",
    asks="Does the optimizer find the gradients that backward made?",
    why="zero_grad between backward and step erases them: only weight decay and old momentum move the weights.",
    needs=("grad_norm_used", "grad_norm"),
    panel=3,
    thresholds=(
        Threshold(
            name="steps",
            value=3,
            unit="sampled steps",
            meaning="how many must show it",
            seed="",
            decision="in a row; three are no accident",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="gradients are there when the optimizer steps"),
        Outcome(
            name="erased",
            answer=FAULT,
            meaning="gradients are erased before the optimizer uses them",
            fix="Move optimizer.zero_grad() behind optimizer.step(), or before backward().",
            explains=("C", "D4", "S", "A4"),
        ),
    ),
    find=find,
    always=True,
)
