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
        raise NotApplicable(f"the first losses are {shown(start)}: nothing to be so many times as high as")
    index = int(np.argmax(early))
    peak, step = float(early[index]), training.loss.step_at(index)
    measured = {"times": peak / start}
    facts = (
        f"loss {shown(start)} at first, up to {shown(peak)} for {in_a_row} {run.counted(training.loss)} "
        f"(from step {step}) within {limit['within']:g} steps, "
        f"{shown(measured['times'])} times as much"
    )
    if measured["times"] <= limit["times"]:
        return Finding("pass", f"{facts} (limit {limit['times']:g}).", measured, step)
    if training.end < start:
        return Finding(
            "spike", f"{facts} (limit {limit['times']:g}), {shown(training.end)} at the end.", measured, step
        )
    message = f"{facts} (limit {limit['times']:g}), and still {shown(training.end)} at the end: C4.1 asks why."
    return Finding("stays-up", message, measured, step)


def _jump(run: Signals, training: Progress, limit: Limits) -> Finding:
    """Of a loss of any kind: a single point far above all before it, right at the start of the run."""
    loss = training.loss
    early = loss.values[loss.steps <= min(limit["within"], loss.steps[-1])]
    if run.step_unit != "step" or len(early) < limit["in_a_row"] or float(np.min(loss.values)) <= 0:
        raise NotApplicable("the loss is not known to be a cross-entropy, which starts at a guess and has to fall")
    start, index = float(early[0]), int(np.argmax(early))
    peak, step = float(early[index]), loss.step_at(index)
    measured = {"times": peak / start}
    facts = f"loss {shown(start)} at first, {shown(peak)} at step {step} ({shown(peak / start)} times as much)"
    if measured["times"] <= limit["jump"]:
        return Finding("pass", f"{facts}, limit {limit['jump']:g}.", measured, step)
    below = np.flatnonzero(loss.values[index:] < start)
    if not len(below):
        message = f"{facts}, limit {limit['jump']:g}, and never below its start again: C4.1 asks why."
        return Finding("stays-up", message, measured, step)
    back = loss.step_at(index + int(below[0]))
    return Finding("spike", f"{facts}, limit {limit['jump']:g}; below its start by step {back}.", measured, step)


QUESTION = Question(
    code="S1.2",
    name="early spike",
    asks="Does the loss climb well above its start within the first 100 steps?",
    why="The first updates of an adaptive optimizer are full steps in a direction it hardly knows: without a warmup "
    "they throw the model out of its sensible start, and it has to come back first.",
    needs=("loss",),
    panel=1,
    thresholds=(
        Threshold(
            name="times",
            value=1.28,
            unit="times the first loss",
            meaning="a climb worth a note",
            seed="to 8 or 10 from ln 512",
            decision="8 of 6.24; asked of a cross-entropy, where healthy runs come to 1.01 (a regression and a "
            "VAE climb by 1.3 "
            "and are fine). The tutor without warmup only comes to 1.04, held by clipping; C2.1 finds it",
            of="times",
        ),
        Threshold(
            name="jump",
            value=2,
            unit="times the first loss",
            meaning="a climb worth a note where the loss is of another kind",
            seed="",
            decision="a public log jumps from 6.9 to 16.9 in its second step; regressions and VAEs climb by 1.3",
        ),
        Threshold(
            name="within",
            value=100,
            unit="steps",
            meaning="how early",
            seed="the first 100 steps",
            decision="as specified",
        ),
        Threshold(
            name="in_a_row",
            value=3,
            unit="steps in a row",
            meaning="how long the loss must stay up",
            seed="",
            decision="one unlucky batch does not make a spike",
        ),
        LOSSES,
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="no early spike"),
        Outcome(
            name="spike",
            answer=NOTE,
            meaning="the loss climbed first and fell afterwards: the first steps were too large",
            fix="Warm the learning rate up over the first hundred steps or more.",
        ),
        Outcome(name="stays-up", answer=NOTE, meaning="the loss climbed at once and did not come back"),
    ),
    find=find,
)
