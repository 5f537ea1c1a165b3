"""A6.2: does the loss go on where it was when a run is resumed?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.progress import true_start
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    seams = [event.step for event in run.events("resume") if event.step is not None]
    if not seams:
        raise NotApplicable("the run was not resumed")
    loss, span = run.points("loss"), limit.count("steps")
    worst: Finding | None = None
    for seam in seams:
        before, after = loss.where(loss.steps < seam).values[-span:], loss.from_step(seam).values[:span]
        if len(before) < span or len(after) < span:
            continue
        found = _judged(seam, true_start(loss.values), before, after, limit)
        if worst is None or found.measured["lost"] > worst.measured["lost"]:
            worst = found
    if worst is None:
        raise MissingSignal("loss", f"fewer than {span} losses are recorded before or after the resume")
    return worst


def _judged(seam: int, start: float, before: np.ndarray, after: np.ndarray, limit: Limits) -> Finding:
    last, first = float(np.median(before)), float(np.median(after))
    spread = float(np.std(before - np.linspace(before[0], before[-1], len(before))))
    lost = (first - last) / (start - last) if start > last else 0.0
    measured = {"before": last, "after": first, "lost": lost}
    words = f"loss {shown(last)} before the resume at step {seam}, {shown(first)} after it"
    if lost > limit["lost"] and first - last > limit["spreads"] * spread:
        if lost > limit["all"]:
            return Finding(
                "back-at-start", f"{words}, {shown(start)} at the start: the descent is lost.", measured, seam
            )
        message = f"{words}: {percent(lost)} of the descent is lost (limit {percent(limit['lost'])})."
        return Finding("set-back", message, measured, seam)
    return Finding("pass", f"{words}.", measured, seam)


QUESTION = Question(
    code="A6.2",
    name="the curve after a resume",
    asks="Does the loss go on where it was when the run is resumed?",
    why="A resume that restores everything cannot be seen in the curve. One that loses weights, averages, the "
    "optimizer's state or the preparation of data begins higher.",
    needs=("loss",),
    panel=1,
    thresholds=(
        Threshold(
            name="steps",
            value=10,
            unit="steps",
            meaning="how many losses before and after are compared",
            seed="",
            decision="few enough that training does not mend it meanwhile",
        ),
        Threshold(
            name="lost",
            value=0.2,
            unit="fraction of the descent",
            meaning="how much may be lost at the seam",
            seed="",
            decision="an optimizer whose moments start again loses less on a healthy run",
            of="lost",
        ),
        Threshold(
            name="all",
            value=0.8,
            unit="fraction of the descent",
            meaning="if more is lost, the weights are those of the start",
            seed="",
            decision="ten steps of new training win a little back; an optimizer or data that begin again lose far less",
        ),
        Threshold(
            name="spreads",
            value=4,
            unit="standard deviations of the loss",
            meaning="smaller jumps are noise",
            seed="",
            decision="a median of ten lies within one",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the loss goes on"),
        Outcome(
            name="back-at-start",
            answer=FAULT,
            meaning="the loss is where it began after the resume: the weights were not restored",
            fix='Load the weights of the last checkpoint: model.load_state_dict(checkpoint["model"]), strict.',
            explains=("D2", "V1", "C4", "S"),
        ),
        Outcome(
            name="set-back",
            answer=SUSPECT,
            meaning="the loss is much higher after the resume: something was not restored",
            fix="Restore weights, buffers, optimizer, scheduler and data position together; compare the loss of one "
            "batch before saving and after loading.",
            experiment="Evaluate one fixed batch before saving and after loading: if the losses differ, weights or "
            "buffers are not restored; if not, the optimizer or the data is.",
        ),
    ),
    find=find,
    always=True,
)
