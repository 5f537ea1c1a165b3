"""S4.1: does a residual block have far larger or smaller outputs than the others?"""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np

from steadyrun.questions.form import NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.depth import magnitudes
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    stacks: dict[str, dict[str, float]] = defaultdict(dict)
    blocks = magnitudes(run)
    for name, points in blocks.items():
        stacks[re.sub(r"\d+", "*", name)][name] = _later(points)
    compared = {name: (mine, _others(stack, name)) for stack in stacks.values() for name, mine in stack.items()}
    usable = {name: (mine, others) for name, (mine, others) in compared.items() if mine > 0 and others > 0}
    if len(usable) < 2:
        raise NotApplicable("fewer than two residual blocks of one kind are recorded")
    worst = max(usable, key=lambda name: abs(np.log(usable[name][0] / usable[name][1])))
    mine, others = usable[worst]
    times = max(mine / others, others / mine)
    step = blocks[worst].step_at(len(blocks[worst]) - 1)
    larger = "larger" if mine > others else "smaller"
    facts = (
        f"{worst} has outputs of mean magnitude {shown(mine)} in the second half of the run, {shown(times)} times "
        f"{larger} than the median of the other blocks, {shown(others)}"
    )
    if times > limit["times"]:
        return Finding("outside", f"{facts} (limit {limit['times']:g}).", {"times": times}, step)
    message = f"The largest ratio of a block to the median of the others is {shown(times)} (limit {limit['times']:g})."
    return Finding("pass", message, {"times": times}, step)


def _later(points: Points) -> float:
    return float(np.median(points.values[len(points) // 2 :]))


def _others(stack: dict[str, float], name: str) -> float:
    rest = [value for other, value in stack.items() if other != name]
    return float(np.median(rest)) if rest else 0.0


QUESTION = Question(
    code="S4.1",
    name="balanced blocks",
    asks="Are the activations of all residual blocks within a factor of about 3 of each other?",
    why="The residual stream keeps its scale from block to block. A block far from the others adds far more than they "
    "do, or nothing; C5.2 checks whether it multiplies its input.",
    needs=("activation/*",),
    panel=4,
    thresholds=(
        Threshold(
            name="times",
            value=3,
            unit="times the median of the other blocks",
            meaning="how far a block may be from the others",
            seed="within 3 times of each other",
            decision="a rule of thumb; healthy tutor runs with up to six blocks stay within 2.5, deep models grow "
            "further along the stream, so it is a note",
            of="times",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the blocks are balanced"),
        Outcome(
            name="outside",
            answer=NOTE,
            meaning="a residual block is far larger or smaller than the others",
            fix="No action is needed while the loss falls; otherwise check how this block is initialised and scaled.",
        ),
    ),
    find=find,
)
