"""S6.2: is an attention head stuck on a single key?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.declared_schedule import number
from steadyrun.signals.depth import from_random_weights, from_the_start, none_there
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    if not run.matching("dead_heads/*"):
        none_there(run, "attention")
    counts = run.family("dead_heads/*")
    for block, dead in counts.items():
        # Reading every head of every block takes time: only blocks that always have a dead one are looked into.
        if from_the_start(dead, limit["samples"], limit["steps"]) and float(np.min(dead.values)) >= 1:
            stuck = _stuck(run, block, limit)
            if stuck:
                return _about(run, block, stuck, dead, limit)
    now = {block: float(points.values[-1]) for block, points in counts.items()}
    total = sum(now.values())
    worst = max(now, key=lambda block: now[block])
    step = counts[worst].step_at(len(counts[worst]) - 1)
    measured = {"dead": total}
    if total > limit["dead"]:
        message = (
            f"{total:.0f} heads are dead at step {step} (limit {limit['dead']:g}), {now[worst]:.0f} of them in {worst}."
        )
        return Finding("dead", message, measured, step)
    return Finding("pass", f"{total:.0f} heads are dead at step {step}, none since the start.", measured, step)


def _stuck(run: Signals, block: str, limit: Limits) -> list[Points]:
    """The heads of a block that are dead in every sample."""
    heads = [run.maybe(name) for name in run.matching(f"low_entropy_share/{block}/*")]
    return [
        head
        for head in heads
        if head is not None
        and from_the_start(head, limit["samples"], limit["steps"])
        and float(np.min(head.values)) > limit["share"]
    ]


def _about(run: Signals, block: str, stuck: list[Points], dead: Points, limit: Limits) -> Finding:
    counts = run.inferred.get("attention_heads")
    total = number(counts.get(block)) if isinstance(counts, dict) else None
    least = run.maybe(f"lowest_head_entropy/{block}")
    lowest = float(np.max(least.values)) if least is not None else float("inf")
    heads = ", ".join(head.name.rpartition("/")[2] for head in stuck)
    measured = {"stuck": float(len(stuck))} | ({} if least is None else {"entropy": lowest})
    facts = (
        f"{block}: head {heads} looks at one key alone (entropy below log 2 for over {limit['share']:.0%} of the "
        f"queries) in all {len(dead)} samples, from step {dead.step_at(0)} to {dead.step_at(len(dead) - 1)}"
    )
    if total is None or len(stuck) >= total:
        return Finding("stuck-block", f"{facts}; so do all its heads: by construction?", measured, dead.step_at(0))
    if lowest > limit["entropy"] or not from_random_weights(run, block.partition("#")[0], known_facts(run, limit)):
        alone = (
            "what queries and keys make alone was not recorded"
            if least is None
            else f"by queries and keys alone its entropy comes to {shown(lowest)} (limit {limit['entropy']:g})"
        )
        why = f"{alone}, or it is not known to start untrained"
        return Finding("narrow", f"{facts}; {why}.", measured, dead.step_at(0))
    return Finding(
        "stuck",
        f"{facts}; by queries and keys alone the lowest entropy of a head is {shown(lowest)} at most (limit "
        f"{limit['entropy']:g}).",
        measured,
        dead.step_at(0),
    )


QUESTION = Question(
    code="S6.2",
    name="stuck heads",
    asks="Is any attention head dead from step 0 to the end?",
    why="A head that looks at one key for every query from the first step on has no gradient to learn anything else: "
    "its softmax is saturated. The head is wasted, and the loss hardly shows it.",
    needs=("dead_heads/*", "low_entropy_share/*", "lowest_head_entropy/*"),
    panel=6,
    thresholds=(
        Threshold(
            name="share",
            value=0.99,
            unit="of the queries",
            meaning="queries with entropy below log 2 that make a head dead",
            seed="over 99% of queries",
            decision="as specified; heads of healthy runs come to 0.4",
        ),
        Threshold(
            name="entropy",
            value=0.05,
            unit="nats",
            meaning="mean entropy of a head that is stuck, in every sample",
            seed="concentrated on one key",
            decision="a head that is narrow by design (a steep distance penalty) keeps 0.1 and more, a saturated "
            "one 0.006",
            of="-entropy",
        ),
        Threshold(
            name="dead",
            value=0.5,
            unit="heads",
            meaning="dead heads at the end that are worth a note",
            seed="usually 0",
            decision="healthy runs have none",
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
            meaning="how long it must be so",
            seed="from step 0",
            decision="any warmup is over",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="no head is dead"),
        Outcome(name="dead", answer=NOTE, meaning="heads are dead at the end, but were alive at the start"),
        Outcome(name="narrow", answer=NOTE, meaning="a head has been narrow from the start, perhaps by design"),
        Outcome(
            name="stuck-block",
            answer=NOTE,
            meaning="all heads of a block are dead from the start: by construction, or by its weights",
        ),
        Outcome(
            name="stuck",
            answer=FAULT,
            meaning="a head of an untrained model is saturated from the first step and never opens",
            fix="Look at what scales this head's scores (a temperature, 1 / sqrt(d), its slice of the "
            "projection): at the "
            "start they should be of the order of 1.",
            may_pass=True,
        ),
    ),
    find=find,
)
