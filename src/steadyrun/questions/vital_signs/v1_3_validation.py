"""V1.3: does validation follow training?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.progress import levels
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.validation import gap_of
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    known, loss = known_facts(run, limit), levels(run, "loss", limit["losses"])
    gap = gap_of(run, known, limit["losses"])
    values = gap.val.values
    if len(values) < limit["fewest"]:
        raise MissingSignal("val_loss", f"{len(values)} validations are recorded, {limit['fewest']:g} are needed")
    last = max(1, int(limit["last"] * len(values)))
    first, best, end = float(values[0]), gap.lowest, float(np.median(values[-last:]))
    measured = {"first": first, "best": best, "end": end, "train": loss.end}
    words = f"validation loss {shown(first)} at first, {shown(best)} at its best, {shown(end)} at the end"
    ceiling = max(abs(loss.start), abs(first))
    if end > (1 + limit["above"]) * ceiling and not known.moves_freely:
        message = f"{words}; training began at {shown(loss.start)} and ends at {shown(loss.end)}."
        return Finding("worse-than-start", message, measured, gap.val.step_at(-1))
    if known.guess is not None and loss.steps >= limit["patience"]:
        measured["ratio"] = end / known.guess
        if end > (1 + limit["above"]) * known.guess and loss.end < limit["beats"] * known.guess:
            return Finding("worse-than-guess", f"{words}; {known.guess_why}.", measured, gap.val.step_at(-1))
        if best > limit["beats"] * known.guess and loss.end < limit["beats"] * known.guess:
            message = f"{words}, never below a guess ({known.guess_why}), while training reaches {shown(loss.end)}."
            return Finding("never-beats-guess", message, measured, gap.val.step_at(-1))
    if gap.rise > max(limit["rise"], limit["noise"] * gap.noise) and gap.train_fell_since:
        message = f"{words}: {gap.rise:.0%} above its best while training falls on."
        return Finding("rises", message, measured, gap.val.step_at(gap.best))
    return Finding("follows", f"{words}.", measured)


QUESTION = Question(
    code="V1.3",
    name="validation follows",
    asks="Does validation improve with training, and is it better than a guess?",
    why="What is learned must hold on data that was not trained on. A validation loss far above its start means that "
    "the model, or its data in evaluation, is broken there.",
    needs=("val_loss", "loss"),
    panel=1,
    thresholds=(
        Threshold(
            name="fewest",
            value=2,
            unit="validations",
            meaning="fewer show no direction",
            seed="",
            decision="a first and a last",
        ),
        Threshold(
            name="above",
            value=0.1,
            unit="fraction",
            meaning="how far above its start, or a guess, validation may end",
            seed="",
            decision="healthy runs end at most 7% above their first validation, and below a guess",
        ),
        Threshold(
            name="beats",
            value=0.985,
            unit="of a guess's loss",
            meaning="what beats a guess",
            seed="",
            decision="as in V1.2",
        ),
        Threshold(
            name="patience",
            value=100,
            unit="steps",
            meaning="before this, validation need not beat a guess",
            seed="",
            decision="a shorter run may not have begun to learn",
        ),
        Threshold(
            name="rise",
            value=0.1,
            unit="fraction of the best validation loss",
            meaning="a smaller rise is not mentioned",
            seed="",
            decision="as in C4.2",
        ),
        Threshold(
            name="noise",
            value=5,
            unit="times the noise of validation",
            meaning="a smaller rise is chance",
            seed="",
            decision="as in C4.2",
        ),
        Threshold(
            name="last",
            value=0.2,
            unit="fraction of the validations",
            meaning="how many of the last ones are its end, as their median",
            seed="",
            decision="one unlucky validation does not count",
        ),
        LOSSES,
    ),
    outcomes=(
        Outcome(name="follows", answer=PASS, meaning="validation follows training"),
        Outcome(name="rises", answer=NOTE, meaning="validation is past its best while training improves: overfitting"),
        Outcome(
            name="worse-than-start",
            answer=SUSPECT,
            meaning="validation ends worse than an untrained model: evaluation mode or its data preparation is broken",
            fix="Evaluate one training batch in evaluation mode: it must have its training loss. Check BatchNorm's "
            "running statistics and the validation preprocessing.",
            experiment="Compute the loss of one training batch in training and in evaluation mode. If they differ "
            "widely, running statistics or dropout are at fault; if not, the validation data is prepared differently.",
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="worse-than-guess",
            answer=SUSPECT,
            meaning="validation is worse than a guess while training is better",
            fix="Check the validation labels and preprocessing, then regularise.",
            experiment="Validate on a few training batches. If their loss is the training loss, the model has "
            "memorised; if not, evaluation is broken.",
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="never-beats-guess",
            answer=SUSPECT,
            meaning="nothing that is learned holds on validation: labels are unrelated, or validation is prepared "
            "differently",
            fix="Check in this order: whether inputs and labels belong together in training, whether there are enough "
            "examples, whether validation is prepared and numbered like training.",
            experiment="Validate on a few training batches. If their loss is far above the training loss, evaluation "
            "is broken. If not, train on shuffled labels: if the curves look the same, the labels are unrelated; if "
            "training falls more slowly, there are too few examples, or validation is prepared differently.",
            may_pass=True,
            symptom=True,
        ),
    ),
    find=find,
    always=True,
)
