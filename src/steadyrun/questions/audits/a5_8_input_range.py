"""A5.8: are the inputs scaled?"""

from __future__ import annotations

import math

import numpy as np

from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.vital_signs import v1_1_loss, v1_2_guess
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    found = [known for name in ("inputs", "generated/real") if (known := _size(run, name)) is not None]
    if not found:
        raise NotApplicable("no floating-point inputs were recorded")
    size, words = next((each for each in found if not limit["small"] <= each[0] <= limit["large"]), found[0])
    measured = {"size": size}
    if limit["small"] <= size <= limit["large"] or _learns(run, limit):
        return Finding("pass", f"{words}.", measured)
    limits = f"expected {limit['small']:g} to {limit['large']:g}"
    return Finding("not-scaled", f"{words}; their root mean square is {shown(size)} ({limits}).", measured)


def _size(run: Signals, name: str) -> tuple[float, str] | None:
    """The root mean square of inputs, and the numbers in words."""
    mean, std = (run.maybe(f"{name}{'/' if name == 'inputs' else '_'}{each}") for each in ("mean", "std"))
    if mean is None or std is None:
        return None
    centre, spread = float(np.median(mean.values)), float(np.median(std.values))
    what = "Inputs" if name == "inputs" else "Real examples beside generated ones"
    return math.hypot(centre, spread), f"{what} have mean {shown(centre)} and standard deviation {shown(spread)}"


def _learns(run: Signals, limit: Limits) -> bool:
    """Whether the model is clearly better than a guess, or, without a known guess, whether its loss falls."""
    guess = limit.ask(v1_2_guess.QUESTION, run)
    if "ratio" in guess.measured:
        return guess.kind == PASS and guess.measured["ratio"] < limit["works"]
    return limit.ask(v1_1_loss.QUESTION, run).kind == PASS


QUESTION = Question(
    code="A5.8",
    name="inputs are scaled",
    asks="Are inputs of about unit size, or does the model learn from them as they are?",
    why="Raw units (pixels up to 255, prices, hertz) saturate units, and a learning rate that suits unit inputs is "
    "far too large or too small for them.",
    needs=("inputs/mean", "inputs/std"),
    panel=1,
    thresholds=(
        Threshold(
            name="large",
            value=20,
            unit="root mean square",
            meaning="larger inputs are not scaled",
            seed="",
            decision="standardised inputs have 1, pixels up to 1; raw pixels have 150",
        ),
        Threshold(
            name="small",
            value=0.02,
            unit="root mean square",
            meaning="smaller inputs are not scaled",
            seed="",
            decision="fifty times below 1",
        ),
        Threshold(
            name="works",
            value=0.8,
            unit="of the loss of a guess",
            meaning="a model with a lower loss can use its inputs",
            seed="",
            decision="as in C7.2",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the model can use its inputs as they are"),
        Outcome(
            name="not-scaled",
            answer=SUSPECT,
            meaning="inputs are not scaled, and the model hardly learns",
            fix="Subtract the mean and divide by the standard deviation of the training data, in training and in "
            "validation.",
            experiment="Train 200 steps with standardised inputs. If the loss at step 200 is lower than in this run at "
            "step 200, their scale was the cause.",
            explains=("C7", "S6", "V1"),
            may_pass=True,
        ),
    ),
    find=find,
    always=True,
)
