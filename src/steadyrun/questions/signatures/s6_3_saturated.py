"""S6.3: are bounded units saturated?"""

from __future__ import annotations

from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.intent import in_a_row
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent


def find(run: Signals, limit: Limits) -> Finding:
    layers = run.family("saturated/*")
    name, points = max(layers.items(), key=lambda layer: float(layer[1].values[-1]))
    last = float(points.values[-1])
    measured = {"saturated": last, "first": float(points.values[0])}
    words = f"In {name}, {percent(last)} of the values are within 1% of the ends of their range"
    first = in_a_row(points.values > limit["share"], limit["samples"])
    if first is not None and last > limit["share"]:
        return Finding("no-slope", f"{words} (limit {percent(limit['share'])}).", measured, points.step_at(first))
    return Finding("pass", f"{words}.", measured)


QUESTION = Question(
    code="S6.3",
    name="saturated units",
    asks="Are the values of a bounded layer (tanh, sigmoid) at the ends of their range?",
    why="At the ends of its range a sigmoid or tanh has no slope: no gradient passes, and the layers before it stop "
    "learning.",
    needs=("saturated/*",),
    panel=6,
    thresholds=(
        Threshold(
            name="share",
            value=0.9,
            unit="of a layer's values",
            meaning="how many may be at an end of the range",
            seed="",
            decision="gates and attention are often half open; if almost all values are at an end, no gradient passes",
            of="saturated",
        ),
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
        Outcome(name="pass", answer=PASS, meaning="bounded units are not saturated"),
        Outcome(
            name="no-slope",
            answer=SUSPECT,
            meaning="a layer is saturated and passes no gradient",
            fix="Initialise with smaller weights, normalise the inputs, or use ReLU or GELU with a normalisation "
            "layer before it.",
            experiment="Divide the layer's incoming weights by ten at the start and train 100 steps. If the loss at "
            "step 100 is lower than in this run at step 100, saturation was the cause.",
            explains=("A4.8", "S4", "V1"),
            may_pass=True,
        ),
    ),
    find=find,
)
