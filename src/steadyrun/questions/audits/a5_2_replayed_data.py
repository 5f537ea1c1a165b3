"""A5.2: does a resumed run continue with new data?"""

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
        facts = f"The {again:,} batches from step {seam} on repeat those from step {int(hashes.steps[0])} on"
        why = _not_an_epoch(run, hashes, index)
        if why:
            return Finding("from-the-start", f"{facts}: {why}.", measured, seam)
        worst = Finding("again", f"{facts}. An epoch may have ended there.", measured, seam)
    resumes = "the resume" if len(seams) == 1 else f"each of {len(seams)} resumes"
    return worst or Finding("pass", f"After {resumes}, the data continued.", {"repeated": 0.0})


def _not_an_epoch(run: Signals, hashes: Series, index: int) -> str:
    """Why this cannot be the start of a new epoch over data in a fixed order; "" if it can."""
    known = [number(loader.get("batches")) for loader in run.listed("loaders")]
    lengths = {int(length) for length in known if length}
    if shuffled := next((who for length in (*lengths, 0) if (who := shuffles(run, length))), ""):
        return f"{shuffled}, so epochs must differ"
    if lengths and all(index % length for length in lengths):
        return f"an epoch has {min(lengths)} batches, and none ended there"
    before = period(hashes.values[:index])
    if before is not None and index % before:
        return f"an epoch has {before} batches, and none ended there"
    rest = hashes.values[2 * index :]
    if len(rest) >= 2 and not np.array_equal(rest[:2], hashes.values[:2]):
        return f"the batch after them is new, so {index} batches are not an epoch"
    return ""


QUESTION = Question(
    code="A5.2",
    name="new data after a resume",
    asks="Does a resumed run continue with data it has not just seen?",
    why="A loader that restarts at a resume shows the first batches again and never the last: the loss drops at the "
    "resume, and part of the data is never used.",
    needs=("batch",),
    panel=1,
    thresholds=(
        Threshold(
            name="batches",
            value=5,
            unit="batches",
            meaning="how many batches in a row must repeat",
            seed="",
            decision="one batch may come twice by chance",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the data continues after a resume"),
        Outcome(
            name="from-the-start",
            answer=FAULT,
            meaning="the resumed run starts over with its first batches",
            fix="Save and load the loader's position: use a stateful loader, or skip the batches already used.",
            explains=("D2", "S1", "C4.2"),
        ),
        Outcome(
            name="again",
            answer=NOTE,
            meaning="the resumed run starts over with its first batches, perhaps a new epoch",
            fix="No action is needed if a new epoch starts there; otherwise save and load the loader's position.",
        ),
    ),
    find=find,
    always=True,
)
