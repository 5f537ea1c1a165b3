"""A5.4: is there a batch of one repeated token?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    if not run.has("repeated_tokens"):
        raise NotApplicable("no token batches are recorded", "repeated_tokens")
    share = run.points("repeated_tokens")
    usual = float(np.median(share.values))
    high = float(np.quantile(share.values, min(1.0, limit["nearly_all"])))
    bad = np.flatnonzero(share.values > limit["share"])
    measured = {"usual": usual, "largest": float(np.max(share.values)), "batches": float(len(bad))}
    facts = f"Normally {percent(usual)} of the tokens repeat the token before"
    if not len(bad) or high > limit["usual"] or len(share) < limit["steps"]:
        return Finding("pass", f"{facts}, at most {percent(measured['largest'])}.", measured)
    step = int(share.steps[bad[0]])
    measured["reaction"] = _reaction(run, [int(bad_step) for bad_step in share.steps[bad]], limit)
    worst = percent(float(share.values[bad[0]]))
    message = f"In the batch at step {step}, {worst} of the tokens repeat the token before (normally {percent(usual)})"
    if measured["reaction"] > limit["reaction"]:
        words = f"Its gradient norm is {shown(measured['reaction'])} times that of neighbouring steps"
        return Finding("degenerate", f"{message}. {words}.", measured, step)
    return Finding("strange", f"{message}.", measured, step)


def _reaction(run: Signals, steps: list[int], limit: Limits) -> float:
    """The largest gradient norm at these steps, relative to the median of the neighbouring steps."""
    norms = run.maybe("grad_norm")
    ratios = [0.0]
    for step in steps[: limit.count("looked_at")] if norms is not None else []:
        assert norms is not None
        around = norms.values[(np.abs(norms.steps - step) <= limit["around"]) & (norms.steps != step)]
        here = norms.values[norms.steps == step]
        if len(here) and len(around) >= limit["norms"] and float(np.median(around)) > 0:
            ratios.append(float(here[0]) / float(np.median(around)))
    return max(ratios)


QUESTION = Question(
    code="A5.4",
    name="no degenerate batch",
    asks="Is there a batch of one repeated token, and did the gradient react to it?",
    why="Broken data (one token repeated for pages) gives a large gradient in one direction: a spike that no learning "
    "rate explains.",
    needs=("batch",),
    panel=3,
    thresholds=(
        Threshold(
            name="share",
            value=0.9,
            unit="of the tokens",
            meaning="how many may repeat the token before",
            seed="",
            decision="text repeats a few percent",
            of="largest",
        ),
        Threshold(
            name="usual",
            value=0.5,
            unit="of the tokens",
            meaning="nearly all batches must have fewer",
            seed="",
            decision="some data repeats by nature",
        ),
        Threshold(
            name="steps",
            value=50,
            unit="steps",
            meaning="with fewer the question is not answered",
            seed="",
            decision="fewer do not show what is normal",
        ),
        Threshold(
            name="reaction",
            value=3,
            unit="times the gradient norm of neighbouring steps",
            meaning="how large the gradient norm at the batch must be",
            seed="",
            decision="a batch without a reaction does no harm",
        ),
        Threshold(
            name="nearly_all",
            value=0.98,
            unit="fraction of the batches",
            meaning="the quantile that `usual` applies to",
            seed="",
            decision="a few broken batches do not change what is normal",
        ),
        Threshold(
            name="looked_at",
            value=20,
            unit="batches",
            meaning="for how many such batches the gradient norm is read",
            seed="",
            decision="the first batches show the reaction",
        ),
        Threshold(
            name="around",
            value=25,
            unit="steps",
            meaning="how many steps on either side are compared",
            seed="",
            decision="the gradient drifts over longer stretches",
        ),
        Threshold(
            name="norms",
            value=10,
            unit="gradient norms",
            meaning="how many gradient norms are needed around a step",
            seed="",
            decision="the median of fewer is noise",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="no batch is one repeated token"),
        Outcome(
            name="degenerate",
            answer=FAULT,
            meaning="a batch of one repeated token disturbed training",
            fix="Filter such documents, or skip batches with repeated tokens; then resume from before that step.",
            explains=("C3.2", "D2", "S1", "S3"),
        ),
        Outcome(
            name="strange",
            answer=NOTE,
            meaning="a batch of one repeated token, without effect",
            fix="Filter such documents.",
        ),
    ),
    find=find,
    always=True,
)
