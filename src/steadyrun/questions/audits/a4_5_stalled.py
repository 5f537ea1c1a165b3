"""A4.5: do weights with a gradient change?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.intent import in_a_row, sampled
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.text import percent


def find(run: Signals, limit: Limits) -> Finding:
    stalled = _moving(run, sampled(run, "stalled"))
    share = float(np.median(stalled.values)) if len(stalled) else 0.0
    measured = {"stalled": share, "samples": float(len(stalled))}
    facts = f"Per step, {percent(share)} of the weights with a gradient do not change at all"
    first = in_a_row(stalled.values > limit["share"], limit["samples"])
    if first is None:
        return Finding("pass", f"{facts} (limit {percent(limit['share'])}).", measured)
    dtypes = run.about("model").get("parameter_dtypes")
    small = isinstance(dtypes, list) and any(dtype in {"bfloat16", "float16"} for dtype in dtypes)
    step = stalled.step_at(first)
    if small:
        message = f"{facts} (limit {percent(limit['share'])}). The weights are stored in 16 bits."
        return Finding("rounded-away", message, measured, step)
    return Finding("tiny", f"{facts} (limit {percent(limit['share'])}).", measured, step)


def _moving(run: Signals, stalled: Points) -> Points:
    """The samples of steps that were not skipped and had a learning rate above zero."""
    rates = [points for name in run.matching("lr/*") if (points := run.maybe(name)) is not None]
    idle = set(stalled.steps.tolist())
    for points in rates:
        idle -= set(points.steps[points.values > 0].tolist())
    skipped = run.maybe("skipped")
    if skipped is not None:
        idle |= set(skipped.steps[skipped.values > 0].tolist())
    return stalled.where([step not in idle for step in stalled.steps.tolist()]) if rates else stalled


QUESTION = Question(
    code="A4.5",
    name="updates change the weights",
    asks="Do weights that have a gradient change when the optimizer steps?",
    why="A bf16 number has eight bits of precision: an update smaller than 1/256 of a weight is rounded away, and "
    "training stalls with healthy gradients.",
    needs=("stalled",),
    panel=5,
    thresholds=(
        Threshold(
            name="share",
            value=0.9,
            unit="of the weights with a gradient",
            meaning="how many of them may stay unchanged by a step",
            seed="",
            decision="healthy fp32 runs leave almost none; pure bf16 runs that learn leave up to 0.8, and at 0.94 "
            "none learns",
            of="stalled",
        ),
        Threshold(
            name="samples",
            value=3,
            unit="consecutive sampled steps",
            meaning="how many must show it",
            seed="",
            decision="the first steps of a warmup may do it",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="updates change the weights"),
        Outcome(
            name="rounded-away",
            answer=FAULT,
            meaning="most updates are rounded away",
            fix="Keep the weights in fp32 and use autocast for the computation, or raise the learning rate.",
            explains=("C3", "C4", "S", "P4.6", "P6"),
            may_pass=True,
        ),
        Outcome(
            name="tiny",
            answer=NOTE,
            meaning="updates are too small to change the weights",
            fix="Raise the learning rate, or check Adam's eps.",
        ),
    ),
    find=find,
    always=True,
)
