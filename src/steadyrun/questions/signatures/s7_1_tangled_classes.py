"""S7.1: is the regular class learned before the irregular class?"""

from __future__ import annotations

from steadyrun.questions.form import NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.verb_classes import race
from steadyrun.text import percent


def find(run: Signals, limit: Limits) -> Finding:
    curves = race(run, limit["points"])
    if curves.steps[-1] < limit["steps"]:
        why = f"the gap is judged from step {limit['steps']:g} on; the last recorded step is {curves.steps[-1]:.0f}"
        if run.running:
            raise MissingSignal("class_loss/*", why, "let it run on")
        raise NotApplicable(why)
    measured = {"leads": curves.leads, "lag": float(curves.lag.mean())}
    step = int(curves.steps[-1])
    if limit["behind"] <= curves.leads <= limit["ahead"]:
        message = f"{curves.words} (from {percent(limit['behind'])} to {percent(limit['ahead'])} neither leads)."
        return Finding("tangled", message, measured, step)
    if curves.leads < limit["behind"]:
        return Finding("pass", f"{curves.words}.", measured, step)
    return Finding("pass", f"{curves.words} (limit {percent(limit['ahead'])}).", measured, step)


QUESTION = Question(
    code="S7.1",
    name="the regular class leads",
    asks="Does the loss of the regular class lead, or do the two curves cross again and again?",
    why="A rule that many forms follow is learned once and helps all of them, so the regular class falls first. If "
    "neither class leads, the model memorises each form separately.",
    needs=("class_loss/*",),
    panel=7,
    thresholds=(
        Threshold(
            name="ahead",
            value=0.6,
            unit="fraction of the run",
            meaning="how long the regular class must be ahead",
            seed="loss_regular drops faster",
            decision="0.98 and more in ten healthy runs of 2,000 steps, 0.92 in one of 10,000",
            of="-leads",
        ),
        Threshold(
            name="behind",
            value=0.4,
            unit="fraction of the run",
            meaning="a regular class ahead for less is behind, which S7.2 covers",
            seed="",
            decision="the same limit for the other class",
        ),
        Threshold(
            name="steps",
            value=1500,
            unit="steps",
            meaning="from when on the curves are judged",
            seed="the gap stabilises around step 1500",
            decision="at 600 steps neither class leads yet in a third of healthy runs",
        ),
        Threshold(
            name="points",
            value=5,
            unit="losses",
            meaning="with fewer losses of both classes the question is not answered",
            seed="",
            decision="the first quarter is left out",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the regular class leads"),
        Outcome(
            name="tangled",
            answer=NOTE,
            meaning="neither class leads: forms are memorised one by one",
            fix="Train on and check again.",
        ),
    ),
    find=find,
    special=True,
)
