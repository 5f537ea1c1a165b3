"""S7.2: does the irregular class fall faster than the regular one?"""

from __future__ import annotations

from steadyrun.questions.form import NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.verb_classes import race


def find(run: Signals, limit: Limits) -> Finding:
    curves = race(run)
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
            "before",
            0.02,
            "of the regular loss",
            "how far the irregular loss is below the regular one, on average",
            "irregular collapses faster than regular",
            "healthy runs, however short, stay above -0.5%; a broken mask comes to -3.3%",
            "-lag",
        ),
        Threshold("leads", 0.2, "of the run", "how long the regular class is ahead at most", "", "a lead, no tangle"),
        Threshold("steps", 200, "steps", "when the curves are judged", "step 200", "as in S1.1"),
    ),
    outcomes=(
        Outcome("pass", PASS, "the irregular class is not ahead"),
        Outcome("irregular-first", NOTE, "irregular forms fall first: a leak, or an answer that is seen"),
    ),
    find=find,
)
