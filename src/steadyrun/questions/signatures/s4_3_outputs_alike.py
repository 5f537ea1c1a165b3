"""S4.3: does the model say something else about other inputs?"""

from __future__ import annotations

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.intent import in_a_row
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals


def find(run: Signals, limit: Limits) -> Finding:
    if run.matching("fit/*") or known_facts(run, limit).guess is not None:
        raise NotApplicable("predictions are compared with a guess that ignores the inputs instead (V1.2)")
    alike = run.points("output_alike")
    last = float(alike.values[-1])
    measured = {"alike": last, "first": float(alike.values[0])}
    words = f"the outputs of different inputs point {last:.2%} the same way"
    first = in_a_row(alike.values > limit["alike"], limit["samples"])
    if first is not None and last > limit["alike"]:
        message = f"{words} (limit {limit['alike']:.2%}; {measured['first']:.2%} at the start)."
        return Finding("collapsed", message, measured, alike.step_at(first))
    return Finding("pass", f"{words}.", measured)


QUESTION = Question(
    code="S4.3",
    name="outputs that differ",
    asks="Do the outputs of different inputs differ?",
    why="A model without a reason to tell inputs apart (no negative pairs, a regulariser that outweighs the rest) "
    "gives one answer to all of them, and its loss looks perfect.",
    needs=("output_alike",),
    panel=4,
    thresholds=(
        Threshold(
            name="alike",
            value=0.999,
            unit="length of the mean direction",
            meaning="outputs that point the same way more than this have collapsed",
            seed="",
            decision="embeddings that are of use point in many directions; untrained ones may begin at 0.9",
            of="alike",
        ),
        Threshold(
            name="samples",
            value=3,
            unit="sampled steps in a row",
            meaning="how many must show it",
            seed="",
            decision="three are no accident",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="other inputs get other outputs"),
        Outcome(
            name="collapsed",
            answer=SUSPECT,
            meaning="the model gives the same output to every input",
            fix="Add what tells inputs apart: negative pairs, a stop-gradient with a predictor, a smaller regulariser.",
            experiment="Compare the outputs of ten inputs by eye: if they are the same, the model has collapsed.",
            explains=("S1", "V1"),
            may_pass=True,
        ),
    ),
    find=find,
)
