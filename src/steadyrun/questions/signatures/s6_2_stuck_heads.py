"""S6.2: is an attention head stuck on a single key?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.declared_schedule import number
from steadyrun.signals.depth import from_random_weights, from_the_start, none_there
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.text import percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    if not run.matching("dead_heads/*"):
        none_there(run, "attention")
    counts = run.family("dead_heads/*")
    for block, dead in counts.items():
        # Reading every head of every block is slow, so only blocks that always have a dead head are read.
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
        message = f"Dead attention heads at step {step}: {total:.0f}, most in {worst} ({now[worst]:.0f})."
        return Finding("dead", message, measured, step)
    return Finding("pass", f"Dead attention heads at step {step}: {total:.0f}.", measured, step)


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
    which = f"head {heads} attends" if len(stuck) == 1 else f"heads {heads} attend"
    measured = {"stuck": float(len(stuck))} | ({} if least is None else {"entropy": lowest})
    facts = (
        f"In {block}, {which} to a single key for over {percent(limit['share'])} of the queries, from step "
        f"{dead.step_at(0)} to step {dead.step_at(len(dead) - 1)}"
    )
    if total is None or len(stuck) >= total:
        return Finding("stuck-block", f"{facts}. These are all its heads.", measured, dead.step_at(0))
    if lowest > limit["entropy"] or not from_random_weights(run, block.partition("#")[0], known_facts(run, limit)):
        return Finding("narrow", f"{facts}. {_not_certain(least, lowest, limit)}", measured, dead.step_at(0))
    message = f"{facts}. {_BY_SCORES} is at most {shown(lowest)} nats (expected at least {limit['entropy']:g})."
    return Finding("stuck", message, measured, dead.step_at(0))


_BY_SCORES = "Without additive masks, the lowest head entropy"  # by queries and keys alone


def _not_certain(least: Points | None, lowest: float, limit: Limits) -> str:
    """Why a narrow head is not proved to be saturated."""
    if least is None:
        return "The entropy without additive masks was not recorded."
    if lowest > limit["entropy"]:
        return f"{_BY_SCORES} reaches {shown(lowest)} nats, above {limit['entropy']:g}."
    return "It may have started from learned weights, or be partly frozen."


QUESTION = Question(
    code="S6.2",
    name="no stuck attention heads",
    asks="Is any attention head dead from step 0 to the end?",
    why="A head that attends to one key for every query from the first step on has a saturated softmax and no "
    "gradient to learn anything else. The head is wasted, and the loss hardly shows it.",
    needs=("dead_heads/*", "low_entropy_share/*", "lowest_head_entropy/*"),
    panel=6,
    thresholds=(
        Threshold(
            name="share",
            value=0.99,
            unit="of the queries",
            meaning="a head with more queries of entropy below log 2 is dead",
            seed="over 99% of queries",
            decision="a rule of thumb; heads of healthy runs reach 0.4",
        ),
        Threshold(
            name="entropy",
            value=0.05,
            unit="nats",
            meaning="a stuck head has a lower mean entropy in every sample",
            seed="concentrated on one key",
            decision="a head that is narrow by design (a steep distance penalty) keeps 0.1 and more, a saturated head "
            "0.006",
            of="-entropy",
        ),
        Threshold(
            name="dead",
            value=0.5,
            unit="heads",
            meaning="more dead heads at the end are noted",
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
            meaning="how long the head must be dead",
            seed="from step 0",
            decision="any warmup is over",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="no attention head is dead"),
        Outcome(
            name="dead",
            answer=NOTE,
            meaning="attention heads died during training",
            fix="No action is needed while the loss falls; otherwise lower the learning rate and look at the scores "
            "of these heads.",
        ),
        Outcome(
            name="narrow",
            answer=NOTE,
            meaning="an attention head is narrow from the start, perhaps by design",
            fix="No action is needed if this is the design; otherwise check what scales the scores of this head.",
        ),
        Outcome(
            name="stuck-block",
            answer=NOTE,
            meaning="all heads of a block attend to a single key from the start",
            fix="No action is needed if this is the design; otherwise check the mask and what scales the scores of "
            "this block.",
        ),
        Outcome(
            name="stuck",
            answer=FAULT,
            meaning="an attention head is saturated from the start and never opens",
            fix="Check what scales the scores of this head (a temperature, 1 / sqrt(d), its slice of the projection): "
            "at the start they should be of the order of 1.",
            may_pass=True,
        ),
    ),
    find=find,
)
