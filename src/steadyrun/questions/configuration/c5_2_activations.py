"""C5.2: the growth of activations from block to block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.signatures import s4_2_dead_block
from steadyrun.signals.depth import Dead, dead_blocks
from steadyrun.signals.facts import LEARNED
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.text import shown


@dataclass(frozen=True)
class Growth:
    """The ratio of a block's output to the output of the block before it."""

    before: str
    block: str
    step: int
    times: float
    from_to: tuple[float, float]


def find(run: Signals, limit: Limits) -> Finding:
    magnitudes = run.family("activation/*")
    order = run.listed("blocks")
    residual = [str(entry.get("name")) for entry in order if entry.get("role") == "block"]
    layers = [str(entry.get("name")) for entry in order if entry.get("role") == "layer"]
    names = [name for name in (residual or layers) if name in magnitudes]
    if len(names) < 2:
        raise NotApplicable("fewer than two blocks of one kind are recorded")
    follows = run.inferred.get("follows")
    takes = follows if isinstance(follows, dict) else {}
    silent = dead_blocks(run, limit.of(s4_2_dead_block.QUESTION), known_facts(run, limit), so_far=True)
    dead = {dead_block.block: dead_block for dead_block in silent}
    chain = [(before, name) for name in names if (before := takes.get(name)) in names]
    pairs = [(before, name) for before, name in chain if before not in dead]
    if dead and not pairs:
        return _about_dead(next(iter(dead.values())))
    if not pairs:
        raise NotApplicable("no recorded block takes the output of another block of its kind")
    grown = [growth for a, b in pairs for growth in _growth(magnitudes[a], magnitudes[b], a, b, limit["early"])]
    if not grown:
        raise MissingSignal("activation/*", "no step has activations of two neighbouring blocks")
    untrained = [growth for growth in grown if growth.step <= limit["early"]]
    # Growth in an untrained model comes from its construction; later growth may be learned.
    worst = max(untrained, key=lambda growth: growth.times, default=grown[0])
    if worst.times <= limit["times"]:
        worst = max(grown, key=lambda growth: growth.times)
    kind = "residual block" if residual else "layer"
    measured = {"times": worst.times}
    facts = (
        f"At step {worst.step} the mean magnitude of the activations is {shown(worst.from_to[0])} after {kind} "
        f"{worst.before} and {shown(worst.from_to[1])} after {worst.block}, {shown(worst.times)} times as large"
    )
    if worst.times > limit["times"]:
        certain = bool(residual) and worst.step <= limit["early"] and known_facts(run, limit).start != LEARNED
        return Finding(
            "growing" if certain else "large", f"{facts} (limit {limit['times']:g} times).", measured, worst.step
        )
    if dead:
        return _about_dead(next(iter(dead.values())))
    if residual and worst.times > limit["usual"]:
        return Finding("steep", f"{facts} (normally up to {limit['usual']:g} times).", measured, worst.step)
    return Finding("pass", f"{facts} (limit {limit['times']:g} times).", measured, worst.step)


def _about_dead(dead: Dead) -> Finding:
    """A block with hardly any output: the next block only seems to grow."""
    times = float(dead.beside[-1] / dead.own[-1]) if dead.own[-1] else float("inf")
    message = (
        f"{dead.block} has an output of only {shown(dead.own[-1])} at step {int(dead.steps[-1])}; that of "
        f"{dead.follower} is {shown(times)} times as large. S4.2 checks whether the block is dead."
    )
    return Finding("dead-block", message, {"times": times}, int(dead.steps[0]))


def _growth(before: Points, after: Points, name: str, block: str, early: float) -> list[Growth]:
    """The largest growth at a step that both blocks have, in the untrained model and in the whole run."""
    steps, mine, theirs = np.intersect1d(after.steps, before.steps, assume_unique=True, return_indices=True)
    values, earlier = after.values[mine], before.values[theirs]
    usable = earlier > 0
    steps, values, earlier = steps[usable], values[usable], earlier[usable]
    if not len(steps):
        return []
    times = values / earlier
    untrained = int(np.searchsorted(steps, early, side="right"))
    indices = {int(np.argmax(times)), *([int(np.argmax(times[:untrained]))] if untrained else [])}
    return [
        Growth(name, block, int(steps[index]), float(times[index]), (float(earlier[index]), float(values[index])))
        for index in sorted(indices)
    ]


QUESTION = Question(
    code="C5.2",
    name="activation growth",
    asks="Do activations grow by at most about 1.5 times per block, and certainly by less than 10 times?",
    why="Without normalisation, or with normalisation at the wrong point, every block multiplies its input. A few "
    "blocks later the values are too large for the loss, and gradients explode.",
    needs=("activation/*",),
    panel=4,
    thresholds=(
        Threshold(
            name="usual",
            value=3,
            unit="times",
            meaning="growth that is a note",
            seed="1.5 per layer, 3 between residual blocks",
            decision="healthy runs of the tutor stay below 2.5",
            of="times",
        ),
        Threshold(
            name="times",
            value=10,
            unit="times",
            meaning="growth of a broken block",
            seed="10 times its input",
            decision="the rule of thumb, between residual blocks; a healthy final norm multiplies its input by ten",
            of="times",
        ),
        Threshold(
            name="early",
            value=20,
            unit="steps",
            meaning="until then the model counts as untrained",
            seed="",
            decision="later growth may be learned",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="activations keep their size from block to block"),
        Outcome(
            name="steep",
            answer=NOTE,
            meaning="activations grow more than usual from one block to the next",
            fix="No action is needed while the loss falls; otherwise put a norm layer before the second block.",
        ),
        Outcome(
            name="large",
            answer=NOTE,
            meaning="activations grow tenfold or more from one block to the next",
            fix="Put a norm layer before the second block, or scale residual branches by 1 / sqrt(2 * blocks).",
        ),
        Outcome(
            name="dead-block",
            answer=NOTE,
            meaning="a block has hardly any output, so the next seems to grow",
            fix="Check the initialisation and scale of the weak block: see S4.2.",
        ),
        Outcome(
            name="growing",
            answer=FAULT,
            meaning="a residual block multiplies its input: normalisation is missing or broken",
            fix="Put a LayerNorm or RMSNorm before attention and before the feed-forward layer of every block.",
        ),
    ),
    find=find,
)
