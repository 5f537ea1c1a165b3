"""S7.1: is the regular class ahead of the irregular one?"""

from __future__ import annotations

from steadyrun.questions.form import NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.verb_classes import race


def find(run: Signals, limit: Limits) -> Finding:
    curves = race(run, limit["points"])
    if curves.steps[-1] < limit["steps"]:
        why = f"asked from step {limit['steps']:g} on, when the gap is stable; the last one is {curves.steps[-1]:.0f}"
        if run.running:
            raise MissingSignal("class_loss/*", why, "let it run on")
        raise NotApplicable(why)
    measured = {"leads": curves.leads, "lag": float(curves.lag.mean())}
    step = int(curves.steps[-1])
    if limit["behind"] <= curves.leads <= limit["ahead"]:
        message = f"{curves.words} ({limit['behind']:.0%} to {limit['ahead']:.0%}: neither leads)."
        return Finding("tangled", message, measured, step)
    if curves.leads < limit["behind"]:
        return Finding("pass", f"{curves.words}: not tangled; S7.2 asks about the order.", measured, step)
    return Finding("pass", f"{curves.words} (limit {limit['ahead']:.0%}).", measured, step)


QUESTION = Question(
    code="S7.1",
    name="tangled classes",
    asks="Does the loss of the regular class lead, or are the two curves tangled?",
    why="A rule that many forms share is learned once and pays for all of them, so that the regular class falls first. "
    "Where neither leads, the model treats every form by itself: it memorises.",
    needs=("class_loss/*",),
    panel=7,
    thresholds=(
        Threshold(
            name="ahead",
            value=0.6,
            unit="of the run",
            meaning="how long the regular class must be ahead",
            seed="loss_regular drops faster",
            decision="0.98 and more in ten healthy runs of 2000 steps, 0.92 in one of 10,000",
            of="-leads",
        ),
        Threshold(
            name="behind",
            value=0.4,
            unit="of the run",
            meaning="below this it is behind, which is no tangle",
            seed="",
            decision="the same, the other way round",
        ),
        Threshold(
            name="steps",
            value=1500,
            unit="steps",
            meaning="when the curves are judged",
            seed="the gap stabilises around step 1500",
            decision="as specified: at 600 steps a third of healthy runs is still tangled",
        ),
        Threshold(
            name="points",
            value=5,
            unit="losses",
            meaning="fewer of both classes show no course",
            seed="",
            decision="the first quarter is left out before",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the regular class leads"),
        Outcome(name="tangled", answer=NOTE, meaning="neither class leads: forms are memorised one by one"),
    ),
    find=find,
    special=True,
)
