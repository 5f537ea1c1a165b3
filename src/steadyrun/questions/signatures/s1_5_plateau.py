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
        why = f"{len(values)} losses are recorded, {_FEWEST} are needed"
        raise MissingSignal("loss", why, "let it run on" if run.running else "train for longer")
    if float(np.min(values)) <= 0:
        raise NotApplicable("losses that are not positive do not fall by a share")
    edges = np.linspace(0, len(values), _BLOCKS + 1).astype(int)
    levels: Floats = np.array([np.median(part) for part in np.split(values, edges[1:-1])])
    middle = _BLOCKS // 2
    half, end = float(np.mean(levels[middle - 1 : middle + 1])), float(np.mean(levels[-2:]))
    fallen, before = 1 - end / half, 1 - half / float(levels[0])
    measured = {"fallen": fallen}
    facts = f"loss {shown(levels[0])} at first, {shown(half)} at half of the record, {shown(end)} at the end"
    if fallen >= limit["fallen"] or before < limit["before"]:
        return Finding("pass", f"{facts}.", measured)
    step = training.loss.step_at(int(edges[int(np.argmax(levels <= (1 + limit["flat"]) * end))]))
    message = (
        f"{facts}: {percent(max(0.0, fallen))} less in the second half (limit {percent(limit['fallen'])}); since "
        f"step {step} it has gained nothing."
    )
    return Finding("plateau", message, measured, step)


QUESTION = Question(
    code="S1.5",
    name="plateau",
    asks="Does the loss fall in the second half of the record, too?",
    why="A loss that has found its floor is done, and the rest of the run is wasted. One that stands still far above "
    "what others reach is stuck: in a bad place, behind a rate that has become too small, or on a part of the "
    "objective that it cannot fulfil. The curve alone cannot say which.",
    needs=("loss",),
    panel=1,
    thresholds=(
        Threshold(
            name="fallen",
            value=0.01,
            unit="share of the loss at half of the record",
            meaning="a fall that still counts",
            seed="",
            decision="healthy public logs fall by 2.1% to 78% in their second half, three that stand still by "
            "less than 0.3%",
            of="-fallen",
        ),
        Threshold(
            name="before",
            value=0.05,
            unit="share of the first loss",
            meaning="what must have been learnt before",
            seed="",
            decision="less is C4.1's to judge",
        ),
        Threshold(
            name="flat",
            value=0.02,
            unit="share of the last loss",
            meaning="what belongs to the plateau",
            seed="",
            decision="medians of twentieths",
        ),
        LOSSES,
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the loss falls to the end"),
        Outcome(
            name="plateau",
            answer=NOTE,
            meaning="the loss stands still: done, or stuck; compare with a run that went further",
            fix="If others reach less: raise the learning rate or let it decay later, look at which part of the loss "
            "stands still, try another seed.",
        ),
    ),
    find=find,
)
