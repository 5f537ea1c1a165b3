"""S4.2: is a residual block dead from the start, or do activations grow with depth before any training?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.curves import thinned
from steadyrun.signals.depth import Dead, dead_blocks, from_the_start, magnitudes, taken_by
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.text import shown

_POINTS = 1000  # samples of a block: more do not change its largest share


def find(run: Signals, limit: Limits) -> Finding:
    blocks = magnitudes(run)
    if len(blocks) < 2:
        raise NotApplicable("fewer than two residual blocks are recorded, so none can be compared with another")
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
    facts = f"{least} is the weakest block, with at most {shares[least]:.2%} of the middle of the others"
    lasting = from_the_start(blocks[least], limit["samples"], limit["steps"])
    if lasting and shares[least] < limit["share"]:
        return Finding("quiet", f"{facts} in every sample (limit {limit['share']:.0%}).", measured, step)
    return Finding("pass", f"{facts} (limit {limit['share']:.0%}).", measured, step)


def _dead(dead: Dead, limit: Limits) -> Finding:
    early = dead.steps <= dead.steps[0] + limit["steps"]
    facts = (
        f"the output of {dead.block} is at most {shown(np.max(dead.own[early]))} in the {int(np.sum(early))} samples "
        f"of the first {limit['steps']:g} steps, while {dead.follower}, which takes it, comes to "
        f"{shown(np.max(dead.beside[early]))} (limit {limit['share']:.0%} of it); "
        f"{shown(dead.own[-1])} beside {shown(dead.beside[-1])} at step {int(dead.steps[-1])}"
    )
    measured = {"share": dead.share}
    step = int(dead.steps[0])
    if dead.certain and dead.stays:
        return Finding("dead", f"{facts} (limit {limit['later']:.0%}).", measured, step)
    why = (
        "it has come back since" if dead.certain else "it is not known to start untrained, or not all of it is trained"
    )
    return Finding("quiet", f"{facts}; {why}.", measured, step)


def _share_of_others(blocks: dict[str, Points], name: str) -> float:
    """A block's largest share of the middle of the other blocks, over its samples (over many, where there are more)."""
    mine = blocks[name].where(thinned(len(blocks[name]), _POINTS))
    others = [np.interp(mine.steps, p.steps, p.values) for other, p in blocks.items() if other != name]
    middle = np.median(np.stack(others), axis=0)
    alive = middle > 0
    return float(np.max(mine.values[alive] / middle[alive])) if np.any(alive) else 1.0


def _grows_with_depth(run: Signals, blocks: dict[str, Points], limit: Limits) -> Finding | None:
    """Every block multiplies what it takes, and there are enough in a row to speak of a power."""
    first = {name: float(points.values[0]) for name, points in blocks.items() if points.steps[0] == 0}
    pairs = [(b, a) for a, b in taken_by(run).items() if first.get(a) and first.get(b)]
    times = [first[a] / first[b] for b, a in pairs]
    if len(pairs) < limit["pairs"] or min(times) <= limit["times"]:
        return None
    message = (
        f"before any training the activations grow from {shown(first[pairs[0][0]])} ({pairs[0][0]}) to "
        f"{shown(first[pairs[-1][1]])} ({pairs[-1][1]}), by {shown(min(times))} to {shown(max(times))} times per block "
        f"(limit {limit['times']:g}): see C5.2."
    )
    return Finding("growing", message, {"times": min(times)}, 0)


THRESHOLDS = (
    Threshold(
        name="share",
        value=0.01,
        unit="of the block that takes its output",
        meaning="a block's mean magnitude that is next to nothing",
        seed="near zero from the start",
        decision="healthy residual blocks are never below 0.4 of their neighbours; the dead one of the tutor "
        "begins at 0.002",
        of="-share",
    ),
    Threshold(
        name="later",
        value=0.1,
        unit="of its neighbours",
        meaning="what it may come to afterwards and still be dead",
        seed="near zero",
        decision="a gate that starts at 0 crawls to 0.04 of the next block in 2000 steps of the tutor",
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
        meaning="how long it must be dead from the start",
        seed="from the start",
        decision="any warmup is over",
    ),
    Threshold(
        name="times",
        value=3,
        unit="times per block",
        meaning="growth before training that is worth a note",
        seed="grow exponentially with depth",
        decision="C5.2 holds the fault, from 10 times on",
    ),
    Threshold(
        name="pairs",
        value=2,
        unit="pairs",
        meaning="neighbouring blocks that must all grow",
        seed="",
        decision="one pair does not show growth from block to block: C5.2 notes it",
    ),
)

QUESTION = Question(
    code="S4.2",
    name="dead block",
    asks="Is the output of any residual block near zero from step 0, or does it grow with depth from step 0?",
    why="What comes out of a residual block is all that the next one gets. A block that starts at nothing cuts the "
    "stream: what lies before it is neither used nor trained.",
    needs=("activation/*",),
    panel=4,
    thresholds=THRESHOLDS,
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="every block is alive"),
        Outcome(
            name="quiet",
            answer=NOTE,
            meaning="a block is next to nothing beside the others, but that it is broken is not certain",
        ),
        Outcome(name="growing", answer=NOTE, meaning="activations grow with depth before any training"),
        Outcome(
            name="dead",
            answer=FAULT,
            meaning="a block of an untrained model lets nothing through, and stays like that",
            fix="Look at how this block is initialised and scaled: a gate that starts at 0 belongs on what the "
            "block adds, "
            "x + gate * f(x), never on the whole.",
            may_pass=True,
            explains=("P3.5", "P6.1"),
        ),
    ),
    find=find,
)
