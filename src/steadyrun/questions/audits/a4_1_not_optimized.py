"""A4.1: is every parameter that gets a gradient in an optimizer?"""

from __future__ import annotations

from typing import Any

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
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
    if (idle := _never_stepped(run, limit)) is not None:
        return idle
    return Finding("pass", f"An optimizer holds all {trained:,} parameters that the loss reaches.", measured)


def _never_stepped(run: Signals, limit: Limits) -> Finding | None:
    """Param groups whose optimizer never stepped, although their parameters get gradients and others step."""
    groups = run.listed("param_groups")
    rates = [run.maybe(f"lr/{index}") for index in range(len(groups))]
    most = max((len(points) for points in rates if points is not None), default=0)
    idle = [group for group, points in zip(groups, rates, strict=True) if points is None]
    held = [str(name) for group in idle for name in _listed(group)]
    if most < limit["steps"] or set(held) & set(names(reach(run), "unreached")) or not _stands_still(run, held):
        return None
    message = f"The optimizer of {counted(len(held), 'parameter')} ({listed(held)}) never stepped, while another one "
    message += f"made {counted(most, 'step')}."
    return Finding("never-stepped", message, {"parameters": float(len(held)), "steps": float(most)})


def _stands_still(run: Signals, held: list[str]) -> bool:
    """Whether the blocks with these parameters were measured, and none of their norms changes."""
    norms = {name.partition("/")[2]: run.maybe(name) for name in run.matching("block_param_norm/*")}
    own = [points for block, points in norms.items() if points is not None and _holds(block, held)]
    return bool(own) and all(float(np.ptp(points.values)) == 0 for points in own)


def _holds(block: str, held: list[str]) -> bool:
    return any(name.startswith(f"{block}.") for name in held)


def _listed(group: dict[str, Any]) -> list[object]:
    held = group.get("parameters")
    return held if isinstance(held, list) else []


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
        name="never-stepped",
        answer=FAULT,
        meaning="an optimizer never steps, although its parameters get gradients",
        fix="Call step() on each optimizer after the backward pass of its loss.",
        explains=(*_FOLLOWS, "C2", "V1", "G3"),
        may_pass=True,
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
    thresholds=(
        Threshold(
            name="steps",
            value=50,
            unit="steps",
            meaning="how many steps another optimizer must have made",
            seed="",
            decision="chosen: the other side of a game waits for a few steps at most",
        ),
    ),
    outcomes=_OUTCOMES,
    find=find,
    always=True,
)
