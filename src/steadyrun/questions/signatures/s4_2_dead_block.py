"""S4.2: is a residual block dead from the start, or do activations grow with depth before any training?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.curves import thinned
from steadyrun.signals.depth import Dead, dead_blocks, from_the_start, magnitudes, taken_by
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.text import percent, shown

_POINTS = 1000  # samples of a block: more do not change its largest ratio


def find(run: Signals, limit: Limits) -> Finding:
    blocks = magnitudes(run)
    if len(blocks) < 2:
        raise NotApplicable("fewer than two residual blocks are recorded")
    dead = dead_blocks(run, limit, known_facts(run, limit))
    if dead:
        return _dead(
            max(dead, key=lambda dead_block: (dead_block.certain and dead_block.stays, -dead_block.share)), limit
        )
    if (growth := _grows_with_depth(run, blocks, limit)) is not None:
        return growth
    shares = {name: _share_of_others(blocks, name) for name in blocks}
    least = min(shares, key=lambda name: shares[name])
    measured = {"share": shares[least]}
    step = blocks[least].step_at(len(blocks[least]) - 1)
    facts = f"{least} is the weakest block, with at most {percent(shares[least])} of the median of the others"
    lasting = from_the_start(blocks[least], limit["samples"], limit["steps"])
    if lasting and shares[least] < limit["share"]:
        return Finding(
            "quiet", f"{facts} in every sample (expected at least {percent(limit['share'])}).", measured, step
        )
    return Finding("pass", f"{facts} (expected at least {percent(limit['share'])}).", measured, step)


def _dead(dead: Dead, limit: Limits) -> Finding:
    early = dead.steps <= dead.steps[0] + limit["steps"]
    facts = (
        f"Output of {dead.block} is at most {shown(np.max(dead.own[early]))} in the first {limit['steps']:g} steps; "
        f"the next block, {dead.follower}, reaches {shown(np.max(dead.beside[early]))}. "
        f"At step {int(dead.steps[-1])} they are {shown(dead.own[-1])} and {shown(dead.beside[-1])}"
    )
    measured = {"share": dead.share}
    step = int(dead.steps[0])
    if dead.certain and dead.stays:
        return Finding(
            "dead", f"{facts} (expected at least {percent(limit['later'])} of the next block).", measured, step
        )
    why = "It has recovered." if dead.certain else "It may have started from learned weights, or be partly frozen."
    return Finding("quiet", f"{facts}. {why}", measured, step)


def _share_of_others(blocks: dict[str, Points], name: str) -> float:
    """The largest ratio of a block to the median of the other blocks, over at most `_POINTS` samples."""
    mine = blocks[name].where(thinned(len(blocks[name]), _POINTS))
    others = [np.interp(mine.steps, p.steps, p.values) for other, p in blocks.items() if other != name]
    median = np.median(np.stack(others), axis=0)
    alive = median > 0
    return float(np.max(mine.values[alive] / median[alive])) if np.any(alive) else 1.0


def _grows_with_depth(run: Signals, blocks: dict[str, Points], limit: Limits) -> Finding | None:
    """Growth with depth: every block multiplies its input, and there are enough blocks in a row to show it."""
    first = {name: float(points.values[0]) for name, points in blocks.items() if points.steps[0] == 0}
    pairs = [(b, a) for a, b in taken_by(run).items() if first.get(a) and first.get(b)]
    times = [first[a] / first[b] for b, a in pairs]
    if len(pairs) < limit["pairs"] or min(times) <= limit["times"]:
        return None
    message = (
        f"Before training, activations grow from {shown(first[pairs[0][0]])} ({pairs[0][0]}) to "
        f"{shown(first[pairs[-1][1]])} ({pairs[-1][1]}), by {shown(min(times))} to {shown(max(times))} times per block "
        f"(limit {limit['times']:g})."
    )
    return Finding("growing", message, {"times": min(times)}, 0)


THRESHOLDS = (
    Threshold(
        name="share",
        value=0.01,
        unit="of the next block",
        meaning="a smaller mean magnitude is near zero",
        seed="near zero from the start",
        decision="healthy residual blocks are never below 0.4 of their neighbours; the dead block of the tutor starts "
        "at 0.002",
        of="-share",
    ),
    Threshold(
        name="later",
        value=0.1,
        unit="of the next block",
        meaning="how far a dead block may grow later and still count as dead",
        seed="near zero",
        decision="a gate that starts at 0 reaches 0.04 of the next block in 2,000 steps of the tutor",
    ),
    Threshold(
        name="samples",
        value=5,
        unit="samples",
        meaning="how many must agree",
        seed="",
        decision="the first of them at step 0",
    ),
    Threshold(
        name="steps",
        value=100,
        unit="steps",
        meaning="how long the block must be dead from the start",
        seed="from the start",
        decision="any warmup is over",
    ),
    Threshold(
        name="times",
        value=3,
        unit="times per block",
        meaning="a larger growth before training is noted",
        seed="grow exponentially with depth",
        decision="C5.2 reports the fault, from 10 times on",
    ),
    Threshold(
        name="pairs",
        value=2,
        unit="pairs of neighbouring blocks",
        meaning="how many pairs must all grow",
        seed="",
        decision="one pair does not show growth with depth; C5.2 notes it",
    ),
)

QUESTION = Question(
    code="S4.2",
    name="no dead block",
    asks="Is the output of any residual block near zero from step 0, or do activations grow with depth from step 0?",
    why="The output of a residual block is all that the next block gets. A block with outputs near zero cuts the "
    "stream: everything before it is neither used nor trained.",
    needs=("activation/*",),
    panel=4,
    thresholds=THRESHOLDS,
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="every residual block is active"),
        Outcome(
            name="quiet",
            answer=NOTE,
            meaning="a residual block has outputs near zero",
            fix="No action is needed while the loss falls; otherwise check how this block is initialised and scaled.",
        ),
        Outcome(
            name="growing",
            answer=NOTE,
            meaning="activations grow with depth before training",
            fix="No action is needed while the loss falls; otherwise scale residual branches by 1 / sqrt(2 * blocks),"
            " or add norm layers.",
        ),
        Outcome(
            name="dead",
            answer=FAULT,
            meaning="a residual block is dead from the start: it passes nothing on",
            fix="Check how this block is initialised and scaled. A gate that starts at 0 belongs on the branch, x + "
            "gate * f(x), never on the whole output.",
            may_pass=True,
            explains=("P3.5", "P6.1"),
        ),
    ),
    find=find,
)
