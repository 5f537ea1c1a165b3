"""S1.3: from which step does validation no longer follow training?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.validation import Gap, gap_of
from steadyrun.text import shown


@dataclass(frozen=True)
class Parting:
    """The validation from which on none is clearly better, and what happens after it, as shares of what was."""

    index: int
    length: float  # of the run
    train_falls: float
    rise: float


def find(run: Signals, limit: Limits) -> Finding:
    gap = gap_of(run, known_facts(run, limit), limit["losses"])
    if len(gap.val) < limit["validations"]:
        why = f"{len(gap.val)} validations are recorded, {limit['validations']:g} are needed"
        if run.running:
            raise MissingSignal("val_loss", why, "let it run on")
        raise NotApplicable(why)
    if float(np.min(gap.middle)) <= 0 or float(np.min(gap.train)) <= 0:
        raise NotApplicable("losses that are not positive do not fall by a share")
    parting = _parting(gap, limit["falls"])
    step = gap.val.step_at(parting.index)
    measured = {"length": parting.length, "train_falls": parting.train_falls, "rise": parting.rise}
    facts = (
        f"validation falls until step {step} ({shown(gap.middle[parting.index])}) and is {shown(gap.middle[-1])} at "
        f"the end; training goes from {shown(gap.train[parting.index])} to {shown(gap.train[-1])} in that time"
    )
    long_enough = parting.length >= limit["length"] and len(gap.val) - parting.index > limit["after"]
    if not long_enough or parting.train_falls < limit["train"]:
        return Finding("pass", f"{facts}.", measured, step)
    words = f"{facts}: {parting.train_falls:.0%} less (limit {limit['train']:.0%}) over {parting.length:.0%} of the run"
    if parting.rise > limit["rise"]:
        return Finding("rises", f"{words}, while validation rises by {parting.rise:.0%}.", measured, step)
    return Finding("flattens", f"{words}.", measured, step)


def _parting(gap: Gap, falls: float) -> Parting:
    """The first validation that no later one is below by more than `falls`; the middle of three counts as one."""
    middle, train = gap.middle, gap.train
    lowest_later = np.minimum.accumulate(middle[::-1])[::-1]
    index = int(np.argmax(lowest_later >= (1 - falls) * middle))
    steps = gap.val.steps
    whole = float(steps[-1] - steps[0]) or 1.0
    return Parting(
        index,
        float(steps[-1] - steps[index]) / whole,
        1 - float(train[-1] / train[index]),
        float(np.min(middle[-2:]) / np.min(middle[index:])) - 1,
    )


QUESTION = Question(
    code="S1.3",
    name="train and validation part",
    asks="Is there a step from which validation no longer falls while training falls on?",
    why="From there on the model learns what is true of the training examples alone. Where validation is flat, that is "
    "as far as this data goes and the rest of the run is wasted; where it rises, the model gets worse. A mask that "
    "lets training see the answer looks the same.",
    needs=("loss", "val_loss"),
    panel=1,
    thresholds=(
        Threshold(
            name="falls",
            value=0.02,
            unit="share of the validation loss",
            meaning="a fall that still counts",
            seed="validation flattens",
            decision="the middle of three validations of a healthy run moves by less",
        ),
        Threshold(
            name="length",
            value=0.4,
            unit="share of the run",
            meaning="how long validation has not fallen",
            seed="after some step t*",
            decision="healthy runs with a schedule that ends flatten for the last quarter",
            of="length",
        ),
        Threshold(
            name="train",
            value=0.3,
            unit="share of the training loss",
            meaning="how far training falls on in that time",
            seed="training continues",
            decision="less is what any run gains while its rate decays. Ten of ten tutors of 2000 steps are "
            "noted: they "
            "learn 240 sentences by heart, and the second half of their steps is wasted on validation",
            of="train_falls",
        ),
        Threshold(
            name="rise",
            value=0.05,
            unit="share of the best validation loss",
            meaning="validation that rises rather than flattens",
            seed="plateaus or rises",
            decision="C4.2 holds the fault, from 10% on and with a gap",
            of="rise",
        ),
        Threshold(
            name="validations",
            value=5,
            unit="validations",
            meaning="how many are needed",
            seed="",
            decision="fewer have no course",
        ),
        Threshold(
            name="after",
            value=3,
            unit="validations",
            meaning="more than this many must follow the best one",
            seed="",
            decision="fewer may be low or high by chance",
        ),
        LOSSES,
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="validation follows training"),
        Outcome(
            name="flattens",
            answer=NOTE,
            meaning="validation is flat while training falls on: as far as this data goes, not a bug by itself",
            fix="Stop there, or add data or regularisation; keep the checkpoint of the best validation.",
        ),
        Outcome(
            name="rises",
            answer=NOTE,
            meaning="validation rises while training falls: overfitting; C4.2 says whether it has gone too far",
            fix="Keep the checkpoint of the best validation and stop there.",
        ),
    ),
    find=find,
)
