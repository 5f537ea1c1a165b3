"""S4.3: do different inputs give different outputs?"""

from __future__ import annotations

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.intent import in_a_row
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent


def find(run: Signals, limit: Limits) -> Finding:
    if run.matching("fit/*") or known_facts(run, limit).guess is not None:
        raise NotApplicable("V1.2 compares predictions with a guess that ignores the inputs instead")
    alike = run.points("output_alike")
    last = float(alike.values[-1])
    measured = {"alike": last, "first": float(alike.values[0])}
    words = f"Outputs of different inputs agree in direction by {percent(last)}"
    first = in_a_row(alike.values > limit["alike"], limit["samples"])
    if first is not None and last > limit["alike"]:
        message = f"{words} (limit {percent(limit['alike'])}; {percent(measured['first'])} at the start)."
        return Finding("collapsed", message, measured, alike.step_at(first))
    return Finding("pass", f"{words}.", measured)


QUESTION = Question(
    code="S4.3",
    name="outputs differ",
    asks="Do the outputs of different inputs differ?",
    why="A model without a reason to separate inputs (no negative pairs, a regulariser that outweighs the rest) gives "
    "the same output to all of them, and its loss looks perfect.",
    needs=("output_alike",),
    panel=4,
    thresholds=(
        Threshold(
            name="alike",
            value=0.999,
            unit="length of the mean unit output",
            meaning="outputs that agree in direction by more have collapsed",
            seed="",
            decision="useful embeddings point in many directions; untrained embeddings may start at 0.9",
            of="alike",
        ),
        Threshold(
            name="samples",
            value=3,
            unit="consecutive sampled steps",
            meaning="how many must show it",
            seed="",
            decision="three in a row are not an accident",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="different inputs give different outputs"),
        Outcome(
            name="collapsed",
            answer=SUSPECT,
            meaning="the model gives the same output to every input",
            fix="Add what separates inputs: negative pairs, a stop-gradient with a predictor, or a smaller "
            "regulariser.",
            experiment="Print the outputs of ten inputs. If they are the same, the model has collapsed.",
            explains=("S1", "V1"),
            may_pass=True,
        ),
    ),
    find=find,
)
