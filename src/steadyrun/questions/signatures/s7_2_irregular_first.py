"""S7.2: does the irregular class fall faster than the regular one?"""

from __future__ import annotations

from steadyrun.questions.form import NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.verb_classes import race


def find(run: Signals, limit: Limits) -> Finding:
    curves = race(run, limit["points"])
    if curves.steps[-1] < limit["steps"]:
        why = f"asked from step {limit['steps']:g} on; the last one is {curves.steps[-1]:.0f}"
        if run.running:
            raise MissingSignal("class_loss/*", why, "let it run on")
        raise NotApplicable(why)
    lag = float(curves.lag.mean())
    measured = {"leads": curves.leads, "lag": lag}
    step = int(curves.steps[-1])
    if lag < -limit["before"] and curves.leads < limit["leads"]:
        message = f"{curves.words} (limits: {limit['before']:.0%} before it, {limit['leads']:.0%} of the run)."
        return Finding("irregular-first", message, measured, step)
    return Finding("pass", f"{curves.words} (limit: irregular {limit['before']:.0%} before it).", measured, step)


QUESTION = Question(
    code="S7.2",
    name="irregular class first",
    asks="Does the loss of the irregular class collapse faster than that of the regular one?",
    why="Irregular forms have no rule to help them. Where they fall first, the model gets them from somewhere else: "
    "from examples that are in both sets, or from the token itself. S1.1 and C4.2 can prove either.",
    needs=("class_loss/*",),
    panel=7,
    thresholds=(
        Threshold(
            name="before",
            value=0.02,
            unit="of the regular loss",
            meaning="how far the irregular loss is below the regular one, on average",
            seed="irregular collapses faster than regular",
            decision="healthy runs, however short, stay above -0.5%; a broken mask comes to -3.3%",
            of="-lag",
        ),
        Threshold(
            name="leads",
            value=0.2,
            unit="of the run",
            meaning="how long the regular class is ahead at most",
            seed="",
            decision="classes that take turns are ahead half of the time",
        ),
        Threshold(
            name="steps",
            value=200,
            unit="steps",
            meaning="when the curves are judged",
            seed="step 200",
            decision="as in S1.1",
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
        Outcome(name="pass", answer=PASS, meaning="the irregular class is not ahead"),
        Outcome(
            name="irregular-first", answer=NOTE, meaning="irregular forms fall first: a leak, or an answer that is seen"
        ),
    ),
    find=find,
    special=True,
)
