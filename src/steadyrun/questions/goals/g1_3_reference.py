"""G1.3: does the policy begin as its reference?"""

from __future__ import annotations

from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.policy_metrics import preferences
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent


def find(run: Signals, limit: Limits) -> Finding:
    distance, size = run.maybe("copy/distance"), run.maybe("copy/model_size")
    if distance is None or size is None or not preferences(run):
        raise NotApplicable("no preferences are learned beside a reference of the same shape")
    norm = float(size.values[0])
    if not norm:
        raise NotApplicable("the policy begins with weights of zero")
    apart = float(distance.values[0]) / norm
    words = (
        f"At step {distance.step_at(0)} the reference differs from the policy by {percent(apart)} of the weight norm"
    )
    if apart > limit["apart"]:
        return Finding("another", f"{words} (limit {percent(limit['apart'])}).", {"apart": apart})
    return Finding("same", f"{words}.", {"apart": apart})


QUESTION = Question(
    code="G1.3",
    name="policy begins as its reference",
    asks="Does the policy begin with the weights of its reference?",
    why="Preference tuning measures how far the policy moves from its reference. A reference with other weights, such "
    "as random ones, makes every reward a difference between two models.",
    needs=("copy/distance",),
    panel=1,
    thresholds=(
        Threshold(
            name="apart",
            value=0.2,
            unit="of the weight norm",
            meaning="a reference further away at the start is another model",
            seed="",
            decision="as in A2.5: independently initialised networks are 1.4 apart",
        ),
    ),
    outcomes=(
        Outcome(name="same", answer=PASS, meaning="the policy begins as its reference"),
        Outcome(
            name="another",
            answer=SUSPECT,
            meaning="the reference has other weights than the policy began with",
            fix="Load the reference from the checkpoint that the policy starts from, or copy it before training.",
            experiment="Print the rewards of the first batch. They must be zero before the first update.",
            explains=("G1.1", "G1.2", "V1", "C4", "A2.5", "C1"),
        ),
    ),
    find=find,
    always=True,
    special=True,
)
