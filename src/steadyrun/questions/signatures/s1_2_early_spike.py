"""S1.2: does the loss climb above its start in the first steps?"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.progress import Progress, progress
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    training = progress(run, limit["losses"])
    known = known_facts(run, limit)
    if known.classes is None or not known.must_fall:
        return _jump(run, training, limit)
    first = training.loss.steps <= training.loss.steps[0] + limit["within"]
    in_a_row = min(limit.count("in_a_row"), int(np.sum(first)))
    early = np.min(sliding_window_view(training.loss.values[first], in_a_row), axis=1)
    start = max(training.start, float(training.loss.values[0]))
    if start <= 0:
        raise NotApplicable(f"the first loss is {shown(start)}, so no ratio to it can be computed")
    index = int(np.argmax(early))
    peak, step = float(early[index]), training.loss.step_at(index)
    measured = {"times": peak / start}
    if measured["times"] <= limit["times"]:
        message = f"In the first {limit['within']:g} steps the loss does not stay above {limit['times']:g} times its "
        return Finding("pass", f"{message}start, {shown(start)}.", measured, step)
    message = (
        f"Loss climbed from {shown(start)} to {shown(peak)} or more for {in_a_row} {run.counted(training.loss)} from "
        f"step {step}, {shown(measured['times'])} times its start (limit {limit['times']:g}). "
        f"It ends at {shown(training.end)}."
    )
    return Finding("spike" if training.end < start else "stays-up", message, measured, step)


def _jump(run: Signals, training: Progress, limit: Limits) -> Finding:
    """A single point far above all points before it, at the start of a run with any kind of loss."""
    loss = training.loss
    early = loss.values[loss.steps <= min(limit["within"], loss.steps[-1])]
    if run.step_unit != "step" or len(early) < limit["in_a_row"] or float(np.min(loss.values)) <= 0:
        raise NotApplicable("the loss is not known to be a cross-entropy, which starts at a guess and must fall")
    start, index = float(early[0]), int(np.argmax(early))
    peak, step = float(early[index]), loss.step_at(index)
    measured = {"times": peak / start}
    facts = f"Loss jumped from {shown(start)} to {shown(peak)} at step {step}, {shown(peak / start)} times its start"
    if measured["times"] <= limit["jump"]:
        message = f"In the first {limit['within']:g} steps the loss does not exceed {limit['jump']:g} times its start, "
        return Finding("pass", f"{message}{shown(start)}.", measured, step)
    below = np.flatnonzero(loss.values[index:] < start)
    if not len(below):
        message = f"{facts} (limit {limit['jump']:g}), and never fell below its start again."
        return Finding("stays-up", message, measured, step)
    back = loss.step_at(index + int(below[0]))
    message = f"{facts} (limit {limit['jump']:g}), and was below its start again at step {back}."
    return Finding("spike", message, measured, step)


QUESTION = Question(
    code="S1.2",
    name="early spike",
    asks="Does the loss climb well above its start within the first 100 steps?",
    why="The first updates of an adaptive optimizer are full steps based on very few gradients: without a warmup they "
    "push the model away from its initial weights, and it first has to recover.",
    needs=("loss",),
    panel=1,
    thresholds=(
        Threshold(
            name="times",
            value=1.28,
            unit="times the first loss",
            meaning="a larger climb is noted",
            seed="to 8 or 10 from ln 512",
            decision="8 of 6.24; applies to a cross-entropy, whose healthy runs reach 1.01 (a healthy regression and "
            "a VAE climb by 1.3). The tutor without warmup reaches only 1.04 because of clipping; C2.1 finds it",
            of="times",
        ),
        Threshold(
            name="jump",
            value=2,
            unit="times the first loss",
            meaning="a larger climb is noted if the loss is not a cross-entropy",
            seed="",
            decision="a public log jumps from 6.9 to 16.9 in its second step; regressions and VAEs climb by 1.3",
        ),
        Threshold(
            name="within",
            value=100,
            unit="steps",
            meaning="how early the climb must be",
            seed="the first 100 steps",
            decision="a common rule of thumb",
        ),
        Threshold(
            name="in_a_row",
            value=3,
            unit="consecutive steps",
            meaning="how long the loss must stay up",
            seed="",
            decision="one unlucky batch is not a spike",
        ),
        LOSSES,
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the loss has no early spike"),
        Outcome(
            name="spike",
            answer=NOTE,
            meaning="the loss spiked in the first steps: the updates were too large",
            fix="Warm up the learning rate over the first hundred steps or more.",
        ),
        Outcome(
            name="stays-up",
            answer=NOTE,
            meaning="the loss climbed at once and did not come back",
            fix="Divide the learning rate by 10, or warm it up over the first hundred steps or more.",
        ),
    ),
    find=find,
)
