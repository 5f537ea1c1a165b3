"""A4.1: is every parameter that gets a gradient in an optimizer?"""

from __future__ import annotations

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question
from steadyrun.signals.facts import RANDOM
from steadyrun.signals.intent import count, names, reach
from steadyrun.signals.run_signals import Signals
from steadyrun.text import counted, listed


def find(run: Signals, limit: Limits) -> Finding:
    reached = reach(run)
    total, strange, trained = (count(reached, name) for name in ("left_out_count", "strange", "trained"))
    missing = names(reached, "left_out")
    measured = {"missing": float(total), "strange": float(strange), "optimized": float(trained)}
    are = "is" if total == 1 else "are"
    left_out = f"{counted(total, 'trainable parameter')} with a gradient"
    facts = f"{left_out} {are} in no optimizer ({listed(missing, total)})"
    if total and strange:
        message = f"{facts}. The optimizer holds {counted(strange, 'tensor')} that the model does not have."
        return Finding("stale", message, measured)
    if total and known_facts(run, limit).start == RANDOM:
        return Finding("left-out", f"{facts}. The run started from random weights.", measured)
    if total:
        return Finding("not-optimized", f"{facts}.", measured)
    return Finding("pass", f"An optimizer holds all {trained:,} parameters that the loss reaches.", measured)


_FIX = "Build the optimizer after the model is complete: torch.optim.…(model.parameters())."
_FOLLOWS = ("C1", "C3", "C4", "S", "A4.3", "A4.6", "P4", "P6")
_OUTCOMES = (
    Outcome(name="pass", answer=PASS, meaning="the optimizer holds every parameter that gets a gradient"),
    Outcome(
        name="stale",
        answer=FAULT,
        meaning="the optimizer holds old tensors that the model no longer has",
        fix=_FIX,
        explains=_FOLLOWS,
    ),
    Outcome(
        name="left-out",
        answer=FAULT,
        meaning="some random weights are in no optimizer and never move",
        fix=_FIX,
        explains=_FOLLOWS,
    ),
    Outcome(
        name="not-optimized", answer=NOTE, meaning="some parameters get a gradient but are in no optimizer", fix=_FIX
    ),
)
_WHY = (
    "A parameter that no optimizer holds never moves. This happens if a layer is replaced, or the model is cast to "
    "another dtype, after the optimizer was built: the optimizer keeps the old tensors."
)

QUESTION = Question(
    code="A4.1",
    name="parameters in the optimizer",
    asks="Is every parameter that gets a gradient in an optimizer?",
    why=_WHY,
    needs=("objective",),
    panel=None,
    thresholds=(),
    outcomes=_OUTCOMES,
    find=find,
    always=True,
)
