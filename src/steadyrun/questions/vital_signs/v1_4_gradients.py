"""V1.4: are gradients alive?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.progress import levels
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    norms = run.points("grad_norm")
    if len(norms) < limit["fewest"]:
        raise MissingSignal(
            "grad_norm", f"only {len(norms)} gradient norms are recorded, {limit['fewest']:g} are needed"
        )
    late = norms.values[-max(limit.count("fewest") // 2, int(limit["late"] * len(norms))) :]
    usual, end, zeros = float(np.median(norms.values)), float(np.median(late)), float(np.mean(late == 0))
    largest = float(np.max(norms.values))
    measured = {"median": usual, "end": end, "zeros": zeros, "peak": largest}
    words = f"gradient norm {shown(usual)} in the median, {shown(end)} at the end"
    if zeros > limit["zeros"]:
        return Finding("zero", f"{words}, exactly 0 in {zeros:.0%} of the last {len(late)} steps.", measured)
    first = float(np.median(norms.values[: max(1, int(limit["early"] * len(norms)))]))
    measured["first"] = first
    if first > 0 and end < limit["gone"] * first and levels(run, "loss", limit["losses"]).fallen < limit["learned"]:
        message = f"{words}, {shown(first)} in the beginning, and the loss has not come down."
        return Finding("gone", message, measured)
    return Finding("alive", f"{words}.", measured)


_EXPERIMENT = (
    "Print the gradient norm of each layer in one step (steadyrun preflight). The first layer without a gradient shows "
    "whether units are dead or the graph is cut."
)

QUESTION = Question(
    code="V1.4",
    name="gradients are alive",
    asks="Do gradients arrive to the end?",
    why="Without a gradient nothing is learned, whatever the loss shows.",
    needs=("grad_norm",),
    panel=3,
    thresholds=(
        Threshold(
            name="fewest",
            value=10,
            unit="steps",
            meaning="fewer gradient norms show nothing",
            seed="",
            decision="a few steps may be skipped by a loss scaler",
        ),
        Threshold(
            name="zeros",
            value=0.5,
            unit="fraction of the last steps",
            meaning="how many gradients may be exactly 0",
            seed="",
            decision="healthy runs have none",
            of="zeros",
        ),
        Threshold(
            name="gone",
            value=1e-4,
            unit="of the first gradient norms",
            meaning="a smaller gradient is gone",
            seed="",
            decision="a model that has learned by heart also has such gradients, but its loss is low",
        ),
        Threshold(
            name="learned",
            value=0.5,
            unit="fraction of the first loss",
            meaning="with a larger fall, small gradients are the end of learning",
            seed="",
            decision="a loss that is half gone was learned from",
        ),
        Threshold(
            name="late",
            value=0.2,
            unit="fraction of the gradient norms",
            meaning="how many of the last ones are the end",
            seed="",
            decision="long enough that a pause of the data does not fill it",
        ),
        Threshold(
            name="early",
            value=0.05,
            unit="fraction of the gradient norms",
            meaning="how many of the first ones are the beginning",
            seed="",
            decision="a median of the first steps; later ones have already come down",
        ),
        LOSSES,
    ),
    outcomes=(
        Outcome(name="alive", answer=PASS, meaning="gradients arrive to the end"),
        Outcome(
            name="zero",
            answer=SUSPECT,
            meaning="gradients are exactly 0: units are dead, the output saturates, or the graph is cut",
            fix="Lower the learning rate and start again: dead units do not recover.",
            experiment=_EXPERIMENT,
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="gone",
            answer=SUSPECT,
            meaning="gradients have vanished although the loss is high",
            fix="Lower the learning rate and start again; check for saturated units.",
            experiment=_EXPERIMENT,
            may_pass=True,
            symptom=True,
        ),
    ),
    find=find,
    always=True,
)
