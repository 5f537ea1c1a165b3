"""A5.2: does a resumed run go on with new data?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.records import Series
from steadyrun.signals.batches import period, repeated_from
from steadyrun.signals.declared_schedule import number
from steadyrun.signals.intent import shuffles
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals


def find(run: Signals, limit: Limits) -> Finding:
    seams = [event.step for event in run.events("resume") if event.step is not None]
    if not seams:
        raise NotApplicable("the run was not resumed")
    if not run.has("batch_hash"):
        raise MissingSignal("batch_hash", how="give run.step(loss, batch=…) the batches")
    hashes = run.raw("batch_hash")
    worst: Finding | None = None
    for seam in seams:
        index = int(np.searchsorted(hashes.steps, seam))
        again = repeated_from(hashes.values, index) if 0 < index < len(hashes) else 0
        measured = {"repeated": float(again), "before": float(index)}
        if again < min(limit["batches"], max(2.0, len(hashes) - index)):
            continue
        facts = f"the {again} batches from step {seam} on are those from step {int(hashes.steps[0])} on"
        why = _not_an_epoch(run, hashes, index)
        if why:
            return Finding("from-the-start", f"{facts}: {why}.", measured, seam)
        worst = Finding("again", f"{facts}; an epoch may have ended there.", measured, seam)
    return worst or Finding("pass", f"after {len(seams)} resumes the data went on.", {"repeated": 0.0})


def _not_an_epoch(run: Signals, hashes: Series, index: int) -> str:
    """Why this cannot be the start of a new epoch over data in a fixed order; "" where it can."""
    known = [number(loader.get("batches")) for loader in run.listed("loaders")]
    lengths = {int(length) for length in known if length}
    if shuffled := next((who for length in (*lengths, 0) if (who := shuffles(run, length))), ""):
        return f"{shuffled}, so no two epochs are alike"
    if lengths and all(index % length for length in lengths):
        return f"an epoch has {min(lengths)} batches and none ended there"
    before = period(hashes.values[:index])
    if before is not None and index % before:
        return f"an epoch has {before} batches and none ended there"
    rest = hashes.values[2 * index :]
    if len(rest) >= 2 and not np.array_equal(rest[:2], hashes.values[:2]):
        return f"and the batch after them is a new one, not the first again: {index} batches are no epoch"
    return ""


QUESTION = Question(
    code="A5.2",
    name="new data after a resume",
    asks="Does a resumed run go on with data it has not just seen?",
    why="A loader that starts anew at a resume shows the first batches again and never the last ones: the loss drops "
    "at "
    "the seam, and part of the data is never used.",
    needs=("batch",),
    panel=1,
    thresholds=(
        Threshold(
            name="batches",
            value=5,
            unit="batches",
            meaning="how many must be repeated in a row",
            seed="",
            decision="one may come twice by chance",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the data goes on where it was"),
        Outcome(
            name="from-the-start",
            answer=FAULT,
            meaning="the resumed run begins with its first batches again",
            fix="Save and load the loader's position (a stateful loader, or skip the batches that were used).",
            explains=("D2", "S1", "C4.2"),
        ),
        Outcome(
            name="again",
            answer=NOTE,
            meaning="the resumed run begins with its first batches again, perhaps with a new epoch",
        ),
    ),
    find=find,
    always=True,
)
