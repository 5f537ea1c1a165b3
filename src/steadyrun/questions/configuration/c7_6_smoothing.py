"""C7.6: label smoothing leaves enough to learn."""

from __future__ import annotations

import math

from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.declared_schedule import number
from steadyrun.signals.intent import objective
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.progress import levels
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.smoothed_targets import floor
from steadyrun.text import percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    seen = objective(run)
    smoothing, classes = number(seen.get("smoothing")) or 0.0, number(seen.get("classes")) or 0.0
    if not 0 < smoothing <= 1 or classes < 2:
        raise NotApplicable("the loss does not use label smoothing, as far as was recorded")
    lowest, guess, end = floor(smoothing, int(classes)), math.log(classes), levels(run, "loss", limit["losses"]).end
    share = lowest / guess
    measured = {"smoothing": smoothing, "floor": lowest, "share": share}
    facts = (
        f"With label smoothing {shown(smoothing)} over {classes:g} classes the lowest possible loss is "
        f"{shown(lowest)}, {percent(share)} of that of a guess ({shown(guess)})"
    )
    ends = f"The loss ends at {shown(end)}"
    if share <= limit["large"]:
        return Finding("pass", f"{facts}. {ends}.", measured)
    if end < lowest:
        ends = f"{ends}, below that: the recorded loss seems to be computed without smoothing"
    fix = (
        f"Use label_smoothing=0.1 or 0. If {shown(smoothing)} was meant as the weight of the true class, use "
        f"label_smoothing={shown(1 - smoothing)}."
    )
    return Finding("hides-learning", f"{facts}; limit {limit['large']:.0%}. {ends}.", measured, fix=fix)


QUESTION = Question(
    code="C7.6",
    name="label smoothing",
    asks="Is the loss of a perfect model well below that of a guess with this label smoothing?",
    why="Smoothing puts a lower bound on the loss. Far above the usual 0.1 the targets are nearly uniform: there is "
    "little to learn, and the loss does not show progress.",
    needs=("objective", "loss"),
    panel=1,
    thresholds=(
        LOSSES,
        Threshold(
            name="large",
            value=0.65,
            unit="of ln C",
            meaning="a higher lower bound of the loss hides learning",
            seed="",
            decision="0.3 over 2 classes is the largest in common use, and gives 61%",
            of="share",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="label smoothing leaves enough to learn"),
        Outcome(
            name="hides-learning",
            answer=SUSPECT,
            meaning="label smoothing is too strong",
            fix="Use label_smoothing=0.1 or 0.",
            experiment="Train 200 steps with label_smoothing=0.1. If the validation accuracy at step 200 is higher "
            "than in this run at step 200, smoothing was too strong.",
            explains=("V1", "C4", "S1.4:unrelated", "S1.5"),
        ),
    ),
    find=find,
)
