"""R1.1: do all replicas get the same gradients?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.ranks import GRADIENT, UNKNOWN, Ranks, in_words
from steadyrun.signals.replicas import (
    HOW,
    BlockAgreement,
    Difference,
    block_agreement,
    differences,
    joined,
    unequal_blocks,
    who,
)
from steadyrun.signals.run_signals import Signals
from steadyrun.text import listed, shown

_FOLLOW = ("R1.2", "R1.3:clip", "S1", "C4", "V1")


def find(run: Signals, limit: Limits) -> Finding:
    ranks = joined(run)
    if ranks.kind == UNKNOWN and not any(ranks.groups(name) for name in ranks.classes):
        return _of_unknown_structure(block_agreement(run, limit["samples"]))
    found = compared(run)
    for difference in found:
        steps, judged = unaveraged(ranks, difference, limit["norms"])
        if len(steps) < min(limit["samples"], judged):
            continue
        others = [each for each in found if each is not difference and each.group == difference.group]
        inside = [each for each in others if not unaveraged(ranks, each, limit["norms"])[0]]
        return _finding(ranks, difference, steps, judged, limit, bool(inside))
    count = max(difference.compared for difference in found)
    return Finding("pass", f"The gradients of all replicas agree at {count} sampled steps.", {"samples": float(count)})


def _of_unknown_structure(found: BlockAgreement | None) -> Finding:
    """Blocks that agree show that somebody averages; a block that begins equal and differs was left out.

    Parts of a model that are split by hand begin different.
    """
    if found is None or not found.unequal or (found.equal and not found.begin_equal):
        raise NotApplicable("no ranks are known to be replicas")
    who, when = in_words(found.ranks), f"At all {len(found.steps)} sampled steps"
    measured = {"samples": float(len(found.steps)), "blocks": float(len(found.unequal))}
    if not found.equal:
        words = f"{when} the gradients of {who} differ in all blocks, and no wrapper shows how the ranks work together."
        return Finding("not-compared", words, measured)
    blocks, count = listed(list(found.begin_equal)), len(found.equal)
    rest = f"those of {count} other {'block' if count == 1 else 'blocks'} agree"
    words = f"{when} the gradients of {blocks} differ on {who}, although the parameters begin equal; {rest}."
    return Finding("some-differ", words, measured, found.steps[0], ranks=found.ranks)


def compared(run: Signals) -> list[Difference]:
    """The gradients of replicas; an answer without them if there are none to compare."""
    ranks = joined(run)
    if not any(ranks.groups(name) for name in ranks.classes):
        raise NotApplicable("no ranks are known to be replicas")
    if not (found := differences(run, GRADIENT)):
        raise MissingSignal(f"{GRADIENT}/*", "no two replicas have a digest of gradients at the same step", HOW)
    return found


def unaveraged(ranks: Ranks, difference: Difference, norms: float) -> tuple[list[int], int]:
    """The steps at which gradients differ before clipping, and the number of steps that were judged.

    Clipping and scaling come after the average: if the norms before them agree, the average was taken.
    """
    before = ranks.matrix("grad_norm").of(difference.group)
    apart = dict(zip(before.steps[before.compared].tolist(), before.apart()[before.compared].tolist(), strict=True))
    sampled = [int(step) for step in difference.digests.steps[difference.digests.compared]]
    judged = [step for step in sampled if np.isfinite(apart.get(step, np.nan))] or sampled
    differing = set(difference.steps)
    return [step for step in judged if step in differing and apart.get(step, 1.0) > norms], len(judged)


def _finding(
    ranks: Ranks, difference: Difference, steps: list[int], judged: int, limit: Limits, inside: bool
) -> Finding:
    """`inside`: whether the gradients of other parameters agree."""
    first = steps[0]
    measured = {"differing": float(len(steps)), "samples": float(judged), "fraction": len(steps) / judged}
    how_many = f"At {len(steps)} of {judged} sampled steps, from step {first} on, the gradients of replicas differ: "
    who_differs = f"{who(difference, first)}{_norms(ranks, difference, first)}"
    if measured["fraction"] < limit["always"]:
        return Finding("sometimes", f"{how_many}{who_differs}.", measured, first, ranks=difference.odd(first))
    unequal, equal = unequal_blocks(ranks, difference, GRADIENT, first)
    if unequal and (equal or inside):
        agree = f"{len(equal)} blocks agree" if equal else "the others agree"
        blocks = f"Only {listed(unequal)} {'differs' if len(unequal) == 1 else 'differ'}; {agree}"
        return Finding(
            "partly",
            f"{how_many}{who_differs}. {blocks}.",
            measured | {"blocks": len(unequal)},
            first,
            ranks=difference.odd(first),
        )
    return Finding("not-averaged", f"{how_many}{who_differs}.", measured, first, ranks=difference.odd(first))


def _norms(ranks: Ranks, difference: Difference, step: int) -> str:
    pair, norms = difference.pair(step), ranks.matrix("grad_norm")
    values = norms.of(pair).values[norms.steps == step]
    if values.shape != (1, len(pair)) or not np.all(np.isfinite(values)):
        return ""
    texts = [f"{shown(value)} on rank {rank}" for rank, value in zip(sorted(pair), values[0].tolist(), strict=True)]
    return f" (gradient norm {' and '.join(texts)})"


QUESTION = Question(
    code="R1.1",
    name="averaged gradients",
    asks="Do all replicas get the same gradients?",
    why="Data parallelism averages the gradients of all ranks before each step. If the average is missing, every rank "
    "trains a model of its own on a part of the data, and only one of them is saved.",
    needs=("gradient_digest/*",),
    panel=3,
    thresholds=(
        Threshold(
            name="norms",
            value=1e-5,
            unit="relative difference",
            meaning="gradient norms before clipping that are nearer to each other belong to one average",
            seed="",
            decision="the order of a sum on other hardware changes a norm by about 1e-7; other data changes it by "
            "percents",
        ),
        Threshold(
            name="samples",
            value=2,
            unit="sampled steps",
            meaning="how many must differ, unless fewer were sampled",
            seed="",
            decision="a single step may be a memory error, which R1.2 reports",
        ),
        Threshold(
            name="always",
            value=0.9,
            unit="fraction of the sampled steps",
            meaning="from this on the average is missing altogether, below it at some steps",
            seed="",
            decision="without an average, gradients of different data never agree",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="all replicas get the same gradients"),
        Outcome(
            name="not-averaged",
            answer=FAULT,
            meaning="the gradients are not averaged over the ranks",
            fix="Call the DDP model, not model.module, in the forward pass. With no_sync(), run the last "
            "micro-batch of each step outside of it.",
            explains=_FOLLOW,
            proved=True,
        ),
        Outcome(
            name="partly",
            answer=FAULT,
            meaning="some parameters are left out of the average over the ranks",
            fix="Create every parameter before DistributedDataParallel(model), and call all parts of the model through "
            "the DDP model.",
            explains=_FOLLOW,
            proved=True,
        ),
        Outcome(
            name="sometimes",
            answer=FAULT,
            meaning="at some steps the gradients are not averaged over the ranks",
            fix="Use no_sync() for all micro-batches of a step except the last, on every rank alike.",
            explains=_FOLLOW,
            proved=True,
        ),
        Outcome(
            name="some-differ",
            answer=SUSPECT,
            meaning="some parameters seem to be left out of the average over the ranks",
            fix="Average the gradient of every parameter: for parameter in model.parameters(): "
            "torch.distributed.all_reduce(parameter.grad), then divide it by the number of ranks.",
            experiment="Print the names of the parameters whose gradients are averaged. If the ones named here are "
            "missing by intent, as with experts or heads of each rank, all is well.",
        ),
        Outcome(
            name="not-compared",
            answer=NOTE,
            meaning="the ranks could not be compared as replicas",
            fix="If the ranks train one model, average the gradients before each step, for example with "
            "DistributedDataParallel. No action is needed if each rank trains a model of its own.",
        ),
    ),
    find=find,
    always=True,
    special=True,
)
