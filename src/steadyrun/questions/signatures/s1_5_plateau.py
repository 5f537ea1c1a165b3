"""S1.5: has the loss stopped falling long before the end?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.curves import Floats
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.progress import progress
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent, shown

_BLOCKS = 20  # equal parts whose medians are compared
_FEWEST = 2 * _BLOCKS


def find(run: Signals, limit: Limits) -> Finding:
    training = progress(run, limit["losses"])
    values = training.loss.values
    if len(values) < _FEWEST:
        why = f"recorded losses: {len(values)}, needed: {_FEWEST}"
        raise MissingSignal("loss", why, "let it run on" if run.running else "train for longer")
    if float(np.min(values)) <= 0:
        raise NotApplicable("some losses are not positive, so relative changes are undefined")
    edges = np.linspace(0, len(values), _BLOCKS + 1).astype(int)
    levels: Floats = np.array([np.median(part) for part in np.split(values, edges[1:-1])])
    middle = _BLOCKS // 2
    half, end = float(np.mean(levels[middle - 1 : middle + 1])), float(np.mean(levels[-2:]))
    fallen, before = 1 - end / half, 1 - half / float(levels[0])
    measured = {"fallen": fallen}
    facts = f"Loss was {shown(levels[0])} at the start, {shown(half)} at half of the run and {shown(end)} at the end"
    if fallen >= limit["fallen"] or before < limit["before"]:
        return Finding("pass", f"{facts}.", measured)
    step = training.loss.step_at(int(edges[int(np.argmax(levels <= (1 + limit["flat"]) * end))]))
    message = (
        f"{facts}. It is flat since step {step} (expected a fall of {percent(limit['fallen'])} in the second half)."
    )
    return Finding("plateau", message, measured, step)


QUESTION = Question(
    code="S1.5",
    name="plateau",
    asks="Does the loss still fall in the second half of the run?",
    why="A loss that has reached its floor is done, and the rest of the run is wasted. A loss that is flat far above "
    "what others reach is stuck: in a bad region, at a learning rate that has become too small, or on a term of the "
    "loss that it cannot reduce. The curve alone does not show which.",
    needs=("loss",),
    panel=1,
    thresholds=(
        Threshold(
            name="fallen",
            value=0.01,
            unit="fraction of the loss at half of the run",
            meaning="a smaller fall does not count",
            seed="",
            decision="healthy public logs fall by 2.1% to 78% in their second half; three flat logs by less than 0.3%",
            of="-fallen",
        ),
        Threshold(
            name="before",
            value=0.05,
            unit="fraction of the first loss",
            meaning="how far the loss must have fallen in the first half",
            seed="",
            decision="C4.1 judges a smaller fall",
        ),
        Threshold(
            name="flat",
            value=0.02,
            unit="fraction of the last loss",
            meaning="losses within this range belong to the plateau",
            seed="",
            decision="measured on medians of twenty equal parts",
        ),
        LOSSES,
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the loss falls to the end"),
        Outcome(
            name="plateau",
            answer=NOTE,
            meaning="the loss has stopped falling: done, or stuck",
            fix="If comparable runs reach a lower loss: raise the learning rate or decay it later, find the loss term "
            "that is flat, or try another seed.",
        ),
    ),
    find=find,
)
