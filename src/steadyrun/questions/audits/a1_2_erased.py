"""A1.2: does the optimizer find the gradients?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.curves import Floats
from steadyrun.signals.intent import count, in_a_row, reach, sampled
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    used = sampled(run, "grad_norm_used")
    made = run.maybe("grad_norm")
    if made is None or not float(made.values.max()) > 0:
        raise NotApplicable("every gradient is zero")
    facts = reach(run)
    if count(facts, "trained") <= count(facts, "unreached_count"):
        raise NotApplicable("the gradient reaches no optimized parameter")
    # A flat loss (all rewards of a batch equal) gives zero gradients: nothing was erased then.
    lost = (used.values == 0) & np.isin(used.steps, _made(run))
    empty = int(np.sum(lost))
    measured = {"steps": float(len(used)), "empty": float(empty)}
    first = in_a_row(lost, limit["steps"])
    if first is not None:
        message = (
            f"In {empty} of {len(used)} sampled steps the optimizer found no gradients, though backward had made them "
            f"(norm {shown(made.values[0])} at step {made.step_at(0)})."
        )
        return Finding("erased", message, measured, used.step_at(first))
    found = f"The optimizer found gradients in {len(used) - empty} of {len(used)} sampled steps."
    return Finding("pass", found, measured)


def _made(run: Signals) -> Floats:
    """The steps with a nonzero gradient, by the global norm or by that of a block."""
    norms = [run.maybe(name) for name in ("grad_norm", *run.matching("block_grad_norm/*"))]
    return np.concatenate([points.steps[points.values > 0] for points in norms if points is not None])


QUESTION = Question(
    code="A1.2",
    name="gradients reach the optimizer",
    asks="Does the optimizer find the gradients that backward made?",
    why="zero_grad() between backward() and step() erases the gradients: only weight decay and old momentum move the "
    "weights.",
    needs=("grad_norm_used", "grad_norm"),
    panel=3,
    thresholds=(
        Threshold(
            name="steps",
            value=3,
            unit="consecutive sampled steps",
            meaning="how many must show it",
            seed="",
            decision="three in a row are not an accident",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="gradients are present when the optimizer steps"),
        Outcome(
            name="erased",
            answer=FAULT,
            meaning="gradients are erased before the optimizer uses them",
            fix="Move optimizer.zero_grad() after optimizer.step(), or before backward().",
            explains=("C", "D4", "S", "A4"),
        ),
    ),
    find=find,
    always=True,
)
