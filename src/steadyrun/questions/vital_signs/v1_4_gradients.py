"""V1.4: do gradients arrive to the end of the run?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.progress import levels
from steadyrun.signals.run_signals import Signals
from steadyrun.text import counted, percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    norms = run.points("grad_norm")
    if len(norms) < limit["fewest"]:
        recorded = f"{counted(len(norms), 'gradient norm')} recorded, {limit['fewest']:g} needed"
        raise MissingSignal("grad_norm", recorded)
    late = norms.values[-max(limit.count("fewest") // 2, int(limit["late"] * len(norms))) :]
    usual, end, zeros = float(np.median(norms.values)), float(np.median(late)), float(np.mean(late == 0))
    largest = float(np.max(norms.values))
    measured = {"median": usual, "end": end, "zeros": zeros, "peak": largest}
    words = f"Median gradient norm is {shown(usual)}, {shown(end)} at the end"
    if zeros > limit["zeros"]:
        often = "all" if zeros == 1 else f"{percent(zeros)}"
        return Finding("zero", f"Gradient norm is exactly 0 in {often} of the last {len(late)} steps.", measured)
    first = float(np.median(norms.values[: max(1, int(limit["early"] * len(norms)))]))
    measured["first"] = first
    if first > 0 and end < limit["gone"] * first and levels(run, "loss", limit["losses"]).fallen < limit["learned"]:
        less = f"the loss fell by less than {percent(limit['learned'])}"
        return Finding("gone", f"Gradient norm fell from {shown(first)} to {shown(end)}, but {less}.", measured)
    return Finding("alive", f"{words}.", measured)


_EXPERIMENT = (
    "Print the gradient norm of each layer for one step (steadyrun preflight). The first layer without one shows "
    "whether its units are dead or the graph is cut."
)

QUESTION = Question(
    code="V1.4",
    name="gradients arrive",
    asks="Do gradients arrive to the end of the run?",
    why="Without a gradient nothing is learned, whatever the loss shows.",
    needs=("grad_norm",),
    panel=3,
    thresholds=(
        Threshold(
            name="fewest",
            value=10,
            unit="steps",
            meaning="with fewer gradient norms the question is not answered",
            seed="",
            decision="a loss scaler may skip a few steps",
        ),
        Threshold(
            name="zeros",
            value=0.5,
            unit="fraction of the last steps",
            meaning="how many of the last gradients may be exactly 0",
            seed="",
            decision="healthy runs have none",
            of="zeros",
        ),
        Threshold(
            name="gone",
            value=1e-4,
            unit="of the first gradient norms",
            meaning="a smaller gradient has vanished",
            seed="",
            decision="a model that has memorised its data also has such gradients, but its loss is low",
        ),
        Threshold(
            name="learned",
            value=0.5,
            unit="fraction of the first loss",
            meaning="after a larger fall of the loss, small gradients are the end of learning",
            seed="",
            decision="a run whose loss has halved has learned",
        ),
        Threshold(
            name="late",
            value=0.2,
            unit="fraction of the gradient norms",
            meaning="how many of the last gradient norms form the end",
            seed="",
            decision="long enough that a few empty batches do not fill it",
        ),
        Threshold(
            name="early",
            value=0.05,
            unit="fraction of the gradient norms",
            meaning="how many of the first gradient norms form the start",
            seed="",
            decision="their median; later norms have already fallen",
        ),
        LOSSES,
    ),
    outcomes=(
        Outcome(name="alive", answer=PASS, meaning="gradients arrive to the end"),
        Outcome(
            name="zero",
            answer=SUSPECT,
            meaning="gradients are exactly 0",
            fix="Restart with a lower learning rate: dead units do not recover. Check for a saturated output and for "
            "detach() or no_grad() in the forward pass.",
            experiment=_EXPERIMENT,
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="gone",
            answer=SUSPECT,
            meaning="gradients have vanished although the loss is high",
            fix="Restart with a lower learning rate, and check for saturated units.",
            experiment=_EXPERIMENT,
            may_pass=True,
            symptom=True,
        ),
    ),
    find=find,
    always=True,
)
