"""R1.2: do all replicas hold the same parameters?"""

from __future__ import annotations

from steadyrun.questions.form import FAULT, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.ranks import END, PARAMETER, START, START_STATE, Ranks
from steadyrun.signals.replicas import (
    HOW,
    Difference,
    differences,
    distance,
    joined,
    nothing_to_compare,
    unequal_blocks,
    who,
)
from steadyrun.signals.run_signals import Signals
from steadyrun.text import listed, shown


def find(run: Signals, limit: Limits) -> Finding:
    ranks = joined(run)
    if not any(ranks.groups(name) for name in ranks.classes):
        raise nothing_to_compare(ranks, PARAMETER)
    found = differences(run, PARAMETER)
    if not found:
        raise MissingSignal(f"{PARAMETER}/*", "no two replicas have a digest of parameters at the same step", HOW)
    starts = {(start.name, start.group): start for start in differences(run, START)}
    for difference in found:
        if difference.steps and difference.steps[-1] == _last(difference):
            start = starts.get((difference.name, difference.group))
            return _finding(ranks, difference, start, limit)
    sampled = max(_last(difference) for difference in found)
    for end in differences(run, END):
        if end.steps and end.steps[-1] == _last(end) > sampled:
            return _at_the_end(ranks, end, sampled)
    count = max(difference.compared for difference in found)
    return Finding("pass", f"The parameters of all replicas agree at {count} sampled steps.", {"samples": float(count)})


def _last(difference: Difference) -> int:
    """The last step that was compared: a difference that somebody has mended since is not a fault."""
    return int(difference.digests.steps[difference.digests.compared][-1])


def _finding(ranks: Ranks, difference: Difference, start: Difference | None, limit: Limits) -> Finding:
    first = difference.steps[0]
    how_far = distance(ranks, difference.pair(difference.steps[-1]))
    measured = {"differing": float(len(difference.steps)), "samples": float(difference.compared)}
    measured |= {"distance": how_far[1]} if how_far is not None else {}
    if start is not None and start.steps and first == int(difference.digests.steps[difference.digests.compared][0]):
        words = f"Before the first step the parameters of replicas differ{_in_blocks(ranks, start)}: "
        words += f"{who(start, start.steps[0])}."
        return Finding(
            "other-start", words + _far(how_far, limit), measured, start.steps[0], ranks=start.odd(start.steps[0])
        )
    since = difference.last_equal(first)
    hook = ranks.hook(difference.group)
    when = f"from step {first} on" if since is None else f"since a step between {since} and {first}"
    unequal, equal = unequal_blocks(ranks, difference, PARAMETER, first)
    where = f", first in {listed(unequal)}" if unequal and equal else ""
    words = f"The parameters of replicas differ {when}{where}: {who(difference, first)}."
    if hook:
        words += f" DDP runs the communication hook {hook}."
        return Finding("by-hook", words, measured, first, ranks=difference.odd(first))
    states = Difference(difference.name, difference.group, ranks.matrix(START_STATE).of(difference.group))
    if since is None and states.steps:
        began = states.steps[0]
        words = f"Before the first step the states of the replicas' optimizers differ: {who(states, began)}."
        return Finding("other-state", words + _far(how_far, limit), measured, began, ranks=states.odd(began))
    return Finding("parted", words + _far(how_far, limit), measured, first, ranks=difference.odd(first))


def _in_blocks(ranks: Ranks, start: Difference) -> str:
    """The blocks that begin different, if some hold the same values that are not constants."""
    unequal, equal = unequal_blocks(ranks, start, START, start.steps[0], random=True)
    return f" in {listed(unequal)}" if unequal and equal else ""


def _at_the_end(ranks: Ranks, end: Difference, sampled: int) -> Finding:
    """After the last sample, or after the last step: some programs load other parameters on one rank at the end."""
    step = end.steps[-1]
    unequal, _ = unequal_blocks(ranks, end, END, step)
    where = f" in {listed(unequal)}" if unequal else ""
    words = f"When the run ends, after step {step}, the parameters of replicas differ{where}: {who(end, step)}."
    agreed = f" At step {sampled}, the last sampled one, they agree."
    return Finding("other-end", words + agreed, {"sampled": float(sampled)}, step, ranks=end.odd(step))


def _far(how_far: tuple[str, float] | None, limit: Limits) -> str:
    """How far the replicas are apart, by the norms of their blocks."""
    if how_far is None:
        return ""
    block, apart = how_far
    if apart == 0:
        return " The norms of all blocks are still equal."
    words = f" At the last sample, the norm of {block} differs by {shown(apart)} of its size"
    return f"{words}, which is the size of rounding." if apart < limit["rounding"] else f"{words}."


QUESTION = Question(
    code="R1.2",
    name="equal replicas",
    asks="Do all replicas hold the same parameters?",
    why="Replicas that get the same gradients and settings stay equal bit by bit. If they part, the gradients of "
    "different models are averaged, and the checkpoint of one rank is not the model that was trained.",
    needs=("parameter_digest/*",),
    panel=5,
    thresholds=(
        Threshold(
            name="rounding",
            value=1e-6,
            unit="relative difference",
            meaning="norms of a block that are nearer to each other differ by the size of rounding",
            seed="",
            decision="float32 keeps about 7 digits; the message says so, and the fault stays",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="all replicas hold the same parameters"),
        Outcome(
            name="other-start",
            answer=FAULT,
            meaning="the replicas start with different parameters",
            fix="Wrap the model in DistributedDataParallel, which copies rank 0's parameters to all ranks, or call "
            "torch.distributed.broadcast(parameter.data, 0) for each parameter before the first step.",
            explains=("R2.4", "S1", "C4", "V1"),
        ),
        Outcome(
            name="other-state",
            answer=FAULT,
            meaning="the optimizers of the replicas start with different states",
            fix="Load the optimizer's state on every rank, not on rank 0 alone: DistributedDataParallel copies "
            "parameters, but no optimizer.",
            explains=("R2.4", "S1", "C4", "V1"),
        ),
        Outcome(
            name="parted",
            answer=FAULT,
            meaning="the replicas no longer hold the same parameters",
            fix="Find the code that changes parameters or optimizer state on one rank alone. If none does, a memory "
            "error is likely: test the host, and resume all ranks from an earlier checkpoint.",
            explains=("R2.4", "S1", "C4", "V1"),
        ),
        Outcome(
            name="by-hook",
            answer=SUSPECT,
            meaning="the replicas no longer hold the same parameters, and DDP runs a communication hook",
            fix="Return the mean over all ranks from the hook, or remove register_comm_hook. No action is needed with "
            "post_localSGD_hook, if the parameters are averaged every few steps.",
            experiment="Average the parameters over the ranks, and compare them on two ranks: they then agree.",
        ),
        Outcome(
            name="other-end",
            answer=SUSPECT,
            meaning="the replicas end with different parameters",
            fix="Do not change parameters on one rank alone. No action is needed if the program loads other "
            "parameters on one rank after the last step.",
            experiment='Run it again with steadyrun.record(path, every={"digests": 5}): if the replicas part during '
            "training, this question dates it.",
        ),
    ),
    find=find,
    always=True,
    special=True,
)
