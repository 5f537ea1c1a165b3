"""R2.1: do the ranks train on different data?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.rank_data import Coverage, all_shuffle, coverage, loader_number, sampler_fault, shared, splits
from steadyrun.signals.ranks import Group, Matrix, Ranks, in_words
from steadyrun.signals.replicas import joined
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent

_SAMPLER = "DataLoader(dataset, sampler=DistributedSampler(dataset), …)"
_ONE_SPLIT = (
    "Give all ranks the same dataset in the same order: random_split(dataset, lengths, "
    "generator=torch.Generator().manual_seed(0)) splits off the same part on every rank."
)
_SAME_DATASET = (
    "Print the first example of the dataset on two ranks. If it differs, each rank has a dataset of its own, and may "
    "train on what others validate on."
)


def find(run: Signals, limit: Limits) -> Finding:
    ranks = joined(run)
    if not ranks.data_parallel:
        raise NotApplicable("it is not known which ranks train on different data")
    compared = 0
    for group in ranks.data_parallel:
        hashes = _batches(ranks, group, limit)
        steps = int(hashes.compared.sum())
        compared = max(compared, steps)
        if steps < limit["steps"]:
            continue
        if len(np.unique(hashes.values[hashes.compared][:, 0])) < min(limit["steps"], steps):
            raise NotApplicable("each rank trains on a few batches again and again")
        if (found := _same(ranks, hashes, limit) or _overlap(run, ranks, group, limit)) is not None:
            return found
    if compared < limit["steps"]:
        why = f"only {compared} steps have batches of two ranks or more"
        raise MissingSignal("batch_hash", why, "give run.step(loss, batch=…) the batches on every rank")
    return Finding("pass", f"The ranks see different batches at {compared} steps.", {"steps": float(compared)})


def _batches(ranks: Ranks, group: Group, limit: Limits) -> Matrix:
    """Hashes of the batches; if the ranks did not give any, of what the model got at sampled steps."""
    given = ranks.matrix("batch_hash").of(group)
    if int(given.compared.sum()) >= limit["steps"]:
        return given
    return ranks.matrix("input_digest").of(group)


def _same(ranks: Ranks, hashes: Matrix, limit: Limits) -> Finding | None:
    """Ranks with the same batches at nearly all steps."""
    parts = shared(hashes)
    same = tuple(rank for rank, part in parts.items() if part >= limit["same"])
    if not same:
        return None
    steps = int(hashes.compared.sum())
    fraction = min(parts[rank] for rank in same)
    words = f"{in_words(same)} get the same batches at {percent(fraction)} of {steps} steps"
    words = words[0].upper() + words[1:]
    measured = {"same": fraction, "steps": float(steps), "ranks": float(len(same))}
    first = int(hashes.steps[hashes.compared][0])
    if splits(ranks, same):
        return Finding("perhaps-same", f"{words}, although their samplers split the data.", measured, first, ranks=same)
    losses = shared(ranks.matrix("loss").of(same))
    if losses and min(losses.values()) >= limit["same"]:
        return Finding("same", f"{words}, and their losses are equal.", measured, first, ranks=same)
    if all(loader_number(ranks, rank, "batches") and not loader_number(ranks, rank, "num_replicas") for rank in same):
        return Finding("same", f"{words}; no sampler splits the data.", measured, first, ranks=same)
    return Finding("perhaps-same", f"{words}; their losses differ.", measured, first, ranks=same)


def _overlap(run: Signals, ranks: Ranks, group: Group, limit: Limits) -> Finding | None:
    """Examples of the first epoch that several ranks see."""
    split = splits(ranks, group)
    if split and (len(group) > limit["ranks"] or not all_shuffle(ranks, group)):  # equal examples may lie side by side
        return None
    found = coverage(run, ranks, group)
    if found is None or found.seen < limit["examples"]:
        return None
    if split and found.duplicates is None:
        return None
    excess = (found.repeated - len(group)) / found.seen  # a sampler repeats a few examples for equal parts
    if excess < limit["overlap"] or excess < limit["duplicates"] * (found.duplicates or 0.0):
        return None
    words = f"In the first epoch, {found.repeated} of {found.seen} examples also came to another rank"
    measured = {"repeated": found.repeated / found.seen, "different": float(found.different), "seen": float(found.seen)}
    if split:
        words += f" ({in_words(group)}), although their samplers split the data"
        return Finding("perhaps-overlap", f"{words}.", measured, 0, _ONE_SPLIT, _SAME_DATASET, ranks=tuple(group))
    if why := sampler_fault(ranks, group):
        return Finding("overlap", f"{words}: {why}{in_words(group)}.", measured, 0, ranks=tuple(group))
    if _all_of_it(found, limit):
        return Finding(
            "overlap",
            f"{words}: each of {in_words(group)} goes through all of the data.",
            measured,
            0,
            ranks=tuple(group),
        )
    return Finding("perhaps-overlap", f"{words} ({in_words(group)}).", measured, 0, ranks=tuple(group))


def _all_of_it(found: Coverage, limit: Limits) -> bool:
    """Whether every rank sees nearly all examples that any of them sees."""
    return found.fewest >= limit["same"] * found.different


QUESTION = Question(
    code="R2.1",
    name="different data on each rank",
    asks="Do the ranks train on different data?",
    why="Data parallelism pays only if every rank brings other examples. With the same data on all ranks, W processes "
    "train as one would, and an epoch covers a part of the data.",
    needs=("batch",),
    panel=1,
    thresholds=(
        Threshold(
            name="steps",
            value=5,
            unit="steps",
            meaning="how many steps must be compared",
            seed="",
            decision="a few batches may be equal by chance in a tiny set",
        ),
        Threshold(
            name="same",
            value=0.9,
            unit="fraction of the steps",
            meaning="how many batches must be equal to those of another rank",
            seed="",
            decision="the last batch of an epoch may be padded differently",
        ),
        Threshold(
            name="overlap",
            value=0.1,
            unit="fraction of the examples",
            meaning="how many examples of the first epoch may come to several ranks, beyond one for each rank",
            seed="",
            decision="samplers of two ranks that shuffle differently repeat 25%; a split repeats at most one a rank",
        ),
        Threshold(
            name="duplicates",
            value=4,
            unit="times",
            meaning="how much more examples must be repeated between ranks than within one rank's epoch",
            seed="",
            decision="a set that holds each example twice repeats 25% within a rank and 33% between two",
        ),
        Threshold(
            name="ranks",
            value=64,
            unit="ranks",
            meaning="up to how many ranks examples are compared although samplers split them",
            seed="",
            decision="reading the examples of 1,024 ranks takes three seconds",
        ),
        Threshold(
            name="examples",
            value=50,
            unit="examples",
            meaning="how many examples must be compared",
            seed="",
            decision="with fewer, the padding of a sampler is a large part",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the ranks train on different data"),
        Outcome(
            name="same",
            answer=FAULT,
            meaning="several ranks train on the same data",
            fix=f"Split the data: {_SAMPLER}, or give each rank its own part of an iterable dataset.",
            proved=True,
        ),
        Outcome(
            name="perhaps-same",
            answer=SUSPECT,
            meaning="several ranks are given the same batches",
            fix=f"Split the data: {_SAMPLER}. If each rank takes its part of the batch later, give run.step that part.",
            experiment="Print the first indices or inputs that the model gets on two ranks. If they are equal, the "
            "data is not split; if they differ, run.step is given more than the rank trains on.",
            proved=True,
        ),
        Outcome(
            name="overlap",
            answer=FAULT,
            meaning="the ranks see overlapping parts of the data in one epoch",
            fix="Give DistributedSampler the same seed, num_replicas=world_size and rank=rank on every rank, and one "
            "such sampler to each loader.",
            proved=True,
        ),
        Outcome(
            name="perhaps-overlap",
            answer=SUSPECT,
            meaning="several ranks see the same examples in one epoch",
            fix=f"Split the data: {_SAMPLER}.",
            experiment="Count the different examples of all ranks in one epoch. If they are fewer than the dataset "
            "has, the ranks overlap; if not, the dataset holds duplicates.",
            proved=True,
        ),
    ),
    find=find,
    always=True,
    special=True,
)
