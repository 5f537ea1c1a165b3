"""A4.2: are all parameters registered?"""

from __future__ import annotations

from steadyrun.questions.form import FAULT, PASS, Finding, Limits, Outcome, Question
from steadyrun.signals.intent import count, names, reach
from steadyrun.signals.run_signals import Signals
from steadyrun.text import counted, listed


def find(run: Signals, _limit: Limits) -> Finding:
    facts = reach(run)
    hidden, total = names(facts, "hidden"), count(facts, "hidden_count")
    measured = {"hidden": float(total)}
    if total:
        message = f"model.parameters() lacks {counted(total, 'tensor')} that the loss reaches: {listed(hidden, total)}."
        return Finding("unregistered", message, measured)
    return Finding("pass", "model.parameters() lists every tensor of the model that the loss reaches.", measured)


QUESTION = Question(
    code="A4.2",
    name="registered parameters",
    asks="Does model.parameters() list every tensor that the model holds and the loss reaches?",
    why="Layers in a plain Python list or dictionary work in the forward pass but are invisible to the optimizer, to "
    "state_dict() and to .to(device): they never learn and are not saved.",
    needs=("objective",),
    panel=None,
    thresholds=(),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="all parameters are registered"),
        Outcome(
            name="unregistered",
            answer=FAULT,
            meaning="parameters are not registered, so nothing trains or saves them",
            fix="Hold layers in nn.ModuleList or nn.ModuleDict, and tensors in nn.Parameter or nn.ParameterList.",
            explains=("C1", "C4", "S", "A2", "A4", "P3.7", "A8.1", "P4", "P5.4", "P5.6", "P6"),
        ),
    ),
    find=find,
    always=True,
)
