"""R1.1: do all replicas get the same gradients?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from steadyrun.questions.form import FAULT, NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.ranks import unknown_structure
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.ranks import DDP, GRADIENT, MIXED, TENSOR, UNKNOWN, UNREDUCED, Group, Ranks, in_words
from steadyrun.signals.replicas import (
    HOW,
    Difference,
    block_agreement,
    differences,
    joined,
    nothing_to_compare,
    unequal_blocks,
    who,
)
from steadyrun.signals.run_signals import Signals
from steadyrun.text import counted, listed, shown

_FOLLOW = ("R1.2", "R1.3:clip", "R2.4", "S1", "C4", "V1")


def find(run: Signals, limit: Limits) -> Finding:
    ranks = joined(run)
    if (waiting := _unreduced(ranks, limit)) is not None:
        return waiting
    if ranks.kind in {UNKNOWN, DDP} and not (_grouped(ranks) or ranks.replicas_are_missing):
        seen = unknown_structure.compared(ranks, block_agreement(run, limit["samples"]), limit)
        return seen if ranks.kind == UNKNOWN else _of_one_rank(seen)
    found = compared(run)
    for difference in found:
        steps, judged = unaveraged(ranks, difference, limit["norms"])
        if len(steps) < min(limit["samples"], judged):
            continue
        others = [each for each in found if each is not difference and each.group == difference.group]
        inside = [each for each in others if not unaveraged(ranks, each, limit["norms"])[0]]
        return _finding(ranks, difference, steps, judged, limit, bool(inside))
    if ranks.kind == UNKNOWN and (added := unknown_structure.added_up(ranks, found, limit)) is not None:
        return added
    count = max(difference.compared for difference in found)
    return Finding("pass", f"The gradients of all replicas agree at {count} sampled steps.", {"samples": float(count)})


def _grouped(ranks: Ranks) -> bool:
    return any(ranks.groups(name) for name in ranks.classes)


def _of_one_rank(found: Finding) -> Finding:
    """What is found if DDP has a process group of one rank."""
    words = f"{found.message} DistributedDataParallel averages over a group of one rank."
    fix = "Give DistributedDataParallel the process group of all replicas, or no process_group."
    return replace(found, message=words, fix=fix)


def _unreduced(ranks: Ranks, limit: Limits) -> Finding | None:
    """Gradients of sharded parameters that still wait to be reduced when the optimizer steps."""
    waiting = ranks.matrix(UNREDUCED)
    late = np.flatnonzero(np.nansum(waiting.values, axis=1) > 0)
    if len(late) < min(limit["samples"], max(1, len(waiting.steps))):
        return None
    step, row = int(waiting.steps[late[0]]), waiting.values[late[0]]
    who_waits = tuple(rank for rank, count in zip(waiting.ranks, row.tolist(), strict=True) if count > 0)
    words = f"At {len(late)} of {len(waiting.steps)} sampled steps, from step {step} on, the gradients of "
    words += f"{counted(int(np.nanmax(row)), 'parameter')} are not reduced over the ranks when the optimizer steps "
    words += f"({in_words(who_waits)})."
    return Finding("not-reduced", words, {"parameters": float(np.nanmax(row))}, step, ranks=who_waits)


def compared(run: Signals) -> list[Difference]:
    """The gradients of replicas; an answer without them if there are none to compare."""
    ranks = joined(run)
    if not _grouped(ranks):
        raise nothing_to_compare(ranks, GRADIENT)
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
    if hook := ranks.hook(difference.group):
        words = f"{how_many}{who_differs}. DDP runs the communication hook {hook}."
        return Finding("by-hook", words, measured, first, ranks=difference.odd(first))
    if measured["fraction"] < limit["always"]:
        return Finding("sometimes", f"{how_many}{who_differs}.", measured, first, ranks=difference.odd(first))
    if (batches := _other_batches(ranks, difference.group, limit)) is not None:
        words = f"{how_many}{who_differs}. {batches}"
        return Finding("other-batches", words, measured, first, ranks=difference.odd(first))
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


def _other_batches(ranks: Ranks, group: Group, limit: Limits) -> str | None:
    """In words: ranks that hold parts of the same layers got different batches; None if they got the same."""
    beside = {rank for each in ranks.data_parallel if group[0] in each for rank in each} - {group[0]}
    parts = tuple(rank for rank in group if rank not in beside)
    if ranks.kind not in {TENSOR, MIXED} or len(parts) < 2:
        return None
    for name in ("batch_hash", "input_digest"):
        batches = ranks.matrix(name).of(parts)
        count, differing = int(batches.compared.sum()), int(batches.differs.sum())
        if count >= limit["samples"]:
            words = f"{in_words(parts)} hold parts of the same layers and got different batches at {differing} of "
            enough = differing >= limit["always"] * count
            return f"{words[0].upper()}{words[1:]}{counted(count, 'step')}." if enough else None
    return None


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
        Threshold(
            name="often",
            value=0.5,
            unit="fraction of the steps",
            meaning="ranks that exchange as much as their parameters at fewer steps average from time to time",
            seed="",
            decision="averages of parameters are taken every 4 to 500 steps; those of gradients at every step",
        ),
        Threshold(
            name="larger",
            value=1.05,
            unit="times the largest norm of a rank",
            meaning="a gradient this much larger after the exchange than on every rank before it was added up",
            seed="",
            decision="a mean is never larger; the sum over two ranks was 1.5 to 2 times as large",
            of="ratio",
        ),
        Threshold(
            name="reported",
            value=0.1,
            unit="fraction of the loss",
            meaning="the loss from which backward starts counts as the reported one if they are nearer than this",
            seed="",
            decision="a rank's part of a loss over all tokens is at most half of it",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="all replicas get the same gradients"),
        Outcome(
            name="not-averaged",
            answer=FAULT,
            meaning="the gradients are not averaged over the ranks",
            fix="Wrap the model in DistributedDataParallel, and call the wrapper, not model.module, in the forward "
            "pass. With no_sync(), run the last micro-batch of each step outside of it.",
            explains=_FOLLOW,
            proved=True,
        ),
        Outcome(
            name="not-reduced",
            answer=FAULT,
            meaning="the optimizer steps before the gradients are reduced over the ranks",
            fix="Call model.set_requires_gradient_sync(True) before the last micro-batch of each step, and False "
            "before the others.",
            explains=_FOLLOW,
            proved=True,
        ),
        Outcome(
            name="other-batches",
            answer=FAULT,
            meaning="ranks that hold parts of the same layers get different batches",
            fix="Give all ranks of a tensor-parallel group the same batches: split and seed the data by the rank in "
            "the data-parallel dimension of the mesh, not by the global rank.",
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
            name="by-hook",
            answer=SUSPECT,
            meaning="a communication hook of DDP leaves the gradients of replicas different",
            fix="Return the mean over all ranks from the hook, or remove register_comm_hook. No action is needed with "
            "post_localSGD_hook, if the parameters are averaged every few steps.",
            experiment="Train 50 steps without register_comm_hook: the gradients then agree. Compare the losses.",
            explains=("R1.2",),
        ),
        Outcome(
            name="perhaps-not-averaged",
            answer=SUSPECT,
            meaning="ranks that begin as replicas seem to train without an average of gradients",
            fix="Wrap the model in DistributedDataParallel, or average each gradient over the ranks after the last "
            "backward pass of a step and before clipping.",
            experiment="Print one parameter on two ranks after 100 steps. If it differs and each rank is not meant to "
            "train a model of its own, the average is missing or comes too early.",
        ),
        Outcome(
            name="periodic",
            answer=NOTE,
            meaning="the ranks average from time to time, as with local SGD, and not each gradient",
            fix="No action is needed if this is intended. DistributedDataParallel averages each gradient.",
        ),
        Outcome(
            name="perhaps-sum",
            answer=SUSPECT,
            meaning="the gradients seem to be added up over the ranks instead of averaged",
            fix="Divide by the number of ranks after all_reduce: parameter.grad /= torch.distributed.get_world_size(); "
            "or use op=torch.distributed.ReduceOp.AVG.",
            experiment="torchrun --nproc-per-node 2 -m steadyrun preflight module:function compares a step on two "
            "ranks with one process and the joined batch.",
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
