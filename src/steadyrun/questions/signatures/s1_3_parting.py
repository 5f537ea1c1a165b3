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
from steadyrun.text import counted, percent, shown


@dataclass(frozen=True)
class Parting:
    """The validation after which none is clearly better, and the relative changes since then."""

    index: int
    length: float  # of the run
    train_falls: float
    rise: float


def find(run: Signals, limit: Limits) -> Finding:
    gap = gap_of(run, known_facts(run, limit), limit["losses"])
    if len(gap.val) < limit["validations"]:
        why = f"{counted(len(gap.val), 'validation')} recorded, {limit['validations']:g} needed"
        if run.running:
            raise MissingSignal("val_loss", why, "let it run on")
        raise NotApplicable(why)
    if float(np.min(gap.middle)) <= 0 or float(np.min(gap.train)) <= 0:
        raise NotApplicable("some losses are not positive, so relative changes are undefined")
    parting = _parting(gap, limit["falls"])
    step = gap.val.step_at(parting.index)
    measured = {"length": parting.length, "train_falls": parting.train_falls, "rise": parting.rise}
    facts = (
        f"Validation fell until step {step} ({shown(gap.middle[parting.index])}) and ends at {shown(gap.middle[-1])}. "
        f"Since then training went from {shown(gap.train[parting.index])} to {shown(gap.train[-1])}"
    )
    long_enough = parting.length >= limit["length"] and len(gap.val) - parting.index > limit["after"]
    if not long_enough or parting.train_falls < limit["train"]:
        return Finding("pass", f"{facts}.", measured, step)
    words = f"{facts} ({percent(parting.train_falls)} lower, at least {percent(limit['train'])})."
    return Finding("rises" if parting.rise > limit["rise"] else "flattens", words, measured, step)


def _parting(gap: Gap, falls: float) -> Parting:
    """The first validation that no later one is below by more than `falls`, in medians of three."""
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
    name="validation falls with training",
    asks="Is there a step after which validation no longer falls while training does?",
    why="From there on the model learns what holds only for the training examples. If validation is flat, this data "
    "gives no more and the rest of the run is wasted; if it rises, the model gets worse. A mask that lets training "
    "see the answer looks the same.",
    needs=("loss", "val_loss"),
    panel=1,
    thresholds=(
        Threshold(
            name="falls",
            value=0.02,
            unit="fraction of the validation loss",
            meaning="a smaller fall does not count",
            seed="validation flattens",
            decision="in healthy runs the median of three validations moves by less",
        ),
        Threshold(
            name="length",
            value=0.4,
            unit="fraction of the run",
            meaning="for how long validation must not have fallen",
            seed="after some step t*",
            decision="healthy runs with a finished schedule are flat for the last quarter",
            of="length",
        ),
        Threshold(
            name="train",
            value=0.3,
            unit="fraction of the training loss",
            meaning="how far training must fall in that time",
            seed="training continues",
            decision="any run gains less while its learning rate decays. Ten of ten tutors of 2,000 steps are noted: "
            "they memorise 240 sentences, and the second half of their steps does not help validation",
            of="train_falls",
        ),
        Threshold(
            name="rise",
            value=0.05,
            unit="fraction of the best validation loss",
            meaning="a larger rise counts as rising instead of flat",
            seed="plateaus or rises",
            decision="C4.2 reports the fault, from 10% on and with a gap",
            of="rise",
        ),
        Threshold(
            name="validations",
            value=5,
            unit="validations",
            meaning="with fewer the question is not answered",
            seed="",
            decision="fewer show no trend",
        ),
        Threshold(
            name="after",
            value=3,
            unit="validations",
            meaning="more than this many must follow the best validation",
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
            meaning="validation is flat while training still falls",
            fix="Stop there, or add data or regularisation. Keep the checkpoint with the best validation.",
        ),
        Outcome(
            name="rises",
            answer=NOTE,
            meaning="validation rises while training falls: overfitting",
            fix="Keep the checkpoint with the best validation and stop there.",
        ),
    ),
    find=find,
)
