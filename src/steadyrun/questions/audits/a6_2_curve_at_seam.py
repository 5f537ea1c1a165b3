"""A6.2: does the loss continue at its level when a run is resumed?"""

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
        raise MissingSignal("loss", f"fewer than {span} losses were recorded before or after the resume")
    return worst


def _judged(seam: int, start: float, before: np.ndarray, after: np.ndarray, limit: Limits) -> Finding:
    last, first = float(np.median(before)), float(np.median(after))
    spread = float(np.std(before - np.linspace(before[0], before[-1], len(before))))
    lost = (first - last) / (start - last) if start > last else 0.0
    measured = {"before": last, "after": first, "lost": lost}
    words = f"Loss was {shown(last)} before the resume at step {seam} and {shown(first)} after it"
    if lost > limit["lost"] and first - last > limit["spreads"] * spread:
        if lost > limit["all"]:
            return Finding("back-at-start", f"{words}; it started at {shown(start)}.", measured, seam)
        message = f"{words}: it lost {percent(lost)} of its descent (limit {percent(limit['lost'])})."
        return Finding("set-back", message, measured, seam)
    return Finding("pass", f"{words}.", measured, seam)


QUESTION = Question(
    code="A6.2",
    name="loss after a resume",
    asks="Does the loss continue at its level when the run is resumed?",
    why="A resume that restores everything does not show in the loss. If weights, averages, the optimizer's state or "
    "the data preparation are lost, the loss jumps up.",
    needs=("loss",),
    panel=1,
    thresholds=(
        Threshold(
            name="steps",
            value=10,
            unit="steps",
            meaning="how many losses before and after the resume are compared",
            seed="",
            decision="few enough that training does not hide the jump",
        ),
        Threshold(
            name="lost",
            value=0.2,
            unit="fraction of the descent",
            meaning="how much of its descent the loss may lose at the resume",
            seed="",
            decision="on a healthy run, an optimizer whose moments start again loses less",
            of="lost",
        ),
        Threshold(
            name="all",
            value=0.8,
            unit="fraction of the descent",
            meaning="if more is lost, the weights were not restored",
            seed="",
            decision="ten steps of new training recover a little; an optimizer or data that start again lose far less",
        ),
        Threshold(
            name="spreads",
            value=4,
            unit="standard deviations of the loss",
            meaning="smaller jumps are noise",
            seed="",
            decision="the median of ten losses is within one",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the loss continues at its level"),
        Outcome(
            name="back-at-start",
            answer=FAULT,
            meaning="the weights were not restored at the resume",
            fix='Load the weights of the last checkpoint: model.load_state_dict(checkpoint["model"], strict=True).',
            explains=("D2", "V1", "C4", "S"),
        ),
        Outcome(
            name="set-back",
            answer=SUSPECT,
            meaning="the resume did not restore everything: the loss jumped up",
            fix="Restore weights, buffers, optimizer, scheduler and data position together. Compare the loss of one "
            "batch before saving and after loading.",
            experiment="Evaluate one fixed batch before saving and after loading. If the losses differ, weights or "
            "buffers are not restored; if not, the optimizer or the data position is not.",
        ),
    ),
    find=find,
    always=True,
)
