"""A5.1: does the order of the batches change from epoch to epoch?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.records import Series
from steadyrun.signals.batches import period
from steadyrun.signals.intent import shuffles
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import counted, shown


def find(run: Signals, limit: Limits) -> Finding:
    if not run.has("batch_hash"):
        raise MissingSignal("batch_hash", how="give run.step(loss, batch=…) the batches")
    length, hashes = _period(run, "batch_hash")
    if length is None and run.has("label_hash"):  # augmentation changes inputs, not labels
        length, hashes = _period(run, "label_hash")
        if length is not None and len(np.unique(hashes.values[:length])) < limit["different"] * length:
            length = None  # batches with equal labels repeat in any order
    if length is None:
        return Finding("pass", f"No order of batches was repeated in {counted(len(hashes), 'step')}.")
    if length < limit["batches"]:
        raise NotApplicable(f"an epoch has only {'1 batch' if length == 1 else f'{length} batches'}")
    measured = {"batches": float(length), "epochs": len(hashes) / length}
    facts = f"The same {length} batches came in the same order {shown(measured['epochs'])} times"
    who = shuffles(run, length)
    if who:
        return Finding("not-reshuffled", f"{facts}, although {who}.", measured, length)
    return Finding("fixed", f"{facts}.", measured, length)


def _period(run: Signals, name: str) -> tuple[int | None, Series]:
    """After how many batches the same sequence starts again, without a resume in between."""
    hashes = run.raw(name)
    seams = [event.step for event in run.events("resume") if event.step is not None]
    if seams:  # A5.2 covers what repeats at a resume
        keep = hashes.steps < min(seams) if min(seams) > hashes.steps[0] else hashes.steps >= max(seams)
        hashes = Series(hashes.name, hashes.steps[keep], hashes.values[keep], hashes.times[keep])
    return period(hashes.values), hashes


QUESTION = Question(
    code="A5.1",
    name="a new order each epoch",
    asks="Does the order of the batches change from epoch to epoch?",
    why="A sampler whose seed never changes (DistributedSampler without set_epoch, a generator seeded again) gives "
    "every epoch the same batches: the same examples always meet in a batch.",
    needs=("batch",),
    panel=1,
    thresholds=(
        Threshold(
            name="batches",
            value=4,
            unit="batches per epoch",
            meaning="with fewer there is little to shuffle",
            seed="",
            decision="full batches repeat",
        ),
        Threshold(
            name="different",
            value=0.8,
            unit="fraction of the batches of an epoch",
            meaning="how many must have different labels",
            seed="",
            decision="batches with equal labels repeat in any order",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="batches come in a new order each epoch"),
        Outcome(
            name="not-reshuffled",
            answer=FAULT,
            meaning="every epoch has the same order although the data is shuffled",
            fix="Call sampler.set_epoch(epoch) at the start of each epoch, or do not reset the loader's generator.",
            explains=("S1.3", "C4.2"),
        ),
        Outcome(
            name="fixed",
            answer=NOTE,
            meaning="every epoch has the same batches in the same order",
            fix="Pass shuffle=True to the loader, unless the order is intended.",
        ),
    ),
    find=find,
    always=True,
)
