"""S7.2: is the irregular class learned before the regular class?"""

from __future__ import annotations

from steadyrun.questions.form import NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.verb_classes import race
from steadyrun.text import percent


def find(run: Signals, limit: Limits) -> Finding:
    curves = race(run, limit["points"])
    if curves.steps[-1] < limit["steps"]:
        why = f"the order is judged from step {limit['steps']:g} on; the last recorded step is {curves.steps[-1]:.0f}"
        if run.running:
            raise MissingSignal("class_loss/*", why, "let it run on")
        raise NotApplicable(why)
    lag = float(curves.lag.mean())
    measured = {"leads": curves.leads, "lag": lag}
    step = int(curves.steps[-1])
    if lag < -limit["before"] and curves.leads < limit["leads"]:
        message = (
            f"{curves.words} (limits: a lag of -{percent(limit['before'])}, {percent(limit['leads'])} of the run)."
        )
        return Finding("irregular-first", message, measured, step)
    return Finding("pass", f"{curves.words} (limit: a lag of -{percent(limit['before'])}).", measured, step)


QUESTION = Question(
    code="S7.2",
    name="the irregular class does not lead",
    asks="Does the loss of the irregular class fall before that of the regular class?",
    why="Irregular forms have no rule to help them. If they fall first, the model gets them from elsewhere: from "
    "examples that are in both sets, or from the token itself. S1.1 and C4.2 can prove either.",
    needs=("class_loss/*",),
    panel=7,
    thresholds=(
        Threshold(
            name="before",
            value=0.02,
            unit="of the regular loss",
            meaning="how far below the regular loss the irregular loss may be on average",
            seed="irregular collapses faster than regular",
            decision="healthy runs, however short, stay above -0.5%; a broken mask reaches -3.3%",
            of="-lag",
        ),
        Threshold(
            name="leads",
            value=0.2,
            unit="fraction of the run",
            meaning="how long the regular class may be ahead",
            seed="",
            decision="classes that alternate are ahead half of the time",
        ),
        Threshold(
            name="steps",
            value=200,
            unit="steps",
            meaning="from when on the curves are judged",
            seed="step 200",
            decision="as in S1.1",
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
        Outcome(name="pass", answer=PASS, meaning="the irregular class is not ahead"),
        Outcome(
            name="irregular-first",
            answer=NOTE,
            meaning="irregular forms are learned first: a leak, or a visible answer",
            fix="Check that no input contains its answer, and that training and validation share no form.",
        ),
    ),
    find=find,
    special=True,
)
