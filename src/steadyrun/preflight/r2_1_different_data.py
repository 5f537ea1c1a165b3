"""R2.1, before training: do the ranks read different data?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steadyrun.preflight.same_cause import probe_of, same
from steadyrun.questions.form import FAULT, Finding, Limits, Outcome, Threshold
from steadyrun.questions.ranks.r2_1_different_data import QUESTION as RECORDED
from steadyrun.signals.missing import MissingSignal
from steadyrun.text import percent

if TYPE_CHECKING:
    from steadyrun.preflight.rank_data import LoaderFacts
    from steadyrun.preflight.rank_trial import RankTrial


def find(trial: RankTrial, limit: Limits) -> Finding:
    ranks = trial.ranks[0].layout.data_ranks
    loaders = [trial.ranks[rank].loader for rank in ranks]
    if len(ranks) < 2:
        return _together(trial)
    if one_dataset(loaders):
        return _by_index(loaders)
    return _by_content(loaders, limit)


def one_dataset(loaders: list[LoaderFacts]) -> bool:
    """Whether the ranks index the same data."""
    known = all(loader.indices is not None and loader.dataset for loader in loaders)
    return known and len({(loader.dataset, loader.size) for loader in loaders}) == 1


def _together(trial: RankTrial) -> Finding:
    """Tensor-parallel ranks compute one batch together."""
    first = [facts.loader.first for facts in trial.ranks]
    if all(np.array_equal(first[0], other) for other in first[1:]):
        return Finding("pass", f"The {trial.world} ranks read the same batch, which they compute together.")
    return Finding("apart", "Tensor-parallel ranks compute one batch together, but read different batches.")


def _by_index(loaders: list[LoaderFacts]) -> Finding:
    """Compare the indices of one epoch. Samplers repeat a few to give every rank the same number."""
    orders = [loader.indices for loader in loaders if loader.indices is not None]
    read, different = sum(map(len, orders)), len(np.unique(np.concatenate(orders)))
    within = sum(len(order) - len(np.unique(order)) for order in orders)
    again = read - different - within
    world, first = len(loaders), loaders[0]
    padding = world - 1 if first.splits and first.sampler == "DistributedSampler" else world * first.batch_size
    measured = {"read": float(read), "different": float(different), "twice": float(again)}
    facts = f"{first.sampler}: in one epoch {world} ranks read {read:,} examples, {different:,} of them different"
    if all(np.array_equal(orders[0], other) for other in orders[1:]):
        return Finding("same", f"{facts}. All ranks read the same examples in the same order.", measured)
    if any(loader.redraws for loader in loaders) or again <= padding:
        return Finding("pass", f"{facts}.", measured)
    outcome = "overlap" if first.splits else "perhaps-overlap"
    return Finding(outcome, f"{facts}. {percent(again / max(1, read))} are read on more than one rank.", measured)


def _by_content(loaders: list[LoaderFacts], limit: Limits) -> Finding:
    """Compare the examples of the first batches."""
    examples = [loader.examples for loader in loaders]
    count = min(map(len, examples))
    if count < limit["before_examples"]:
        why = f"the first batches have {count} examples"
        raise MissingSignal("batches", why, f"let every rank read at least {limit['examples']:g} examples")
    read, different = sum(len(np.unique(part)) for part in examples), len(np.unique(np.concatenate(examples)))
    again = 1 - different / max(1, read)
    measured = {"read": float(read), "different": float(different)}
    facts = f"The first batches of {len(loaders)} ranks have {read:,} examples, {different:,} of them different"
    if all(np.array_equal(examples[0][:count], part[:count]) for part in examples[1:]):
        return Finding("same", f"{facts}. All ranks read the same examples in the same order.", measured)
    if again > limit["again"]:
        return Finding("perhaps-overlap", f"{facts}.", measured)
    return Finding("pass", f"{facts}.", measured)


QUESTION = probe_of(
    RECORDED,
    asks="Do the ranks read different examples within an epoch?",
    needs=("several ranks", "batches"),
    thresholds=(
        Threshold(
            name="before_examples",
            value=4,
            unit="examples",
            meaning="examples of each rank that are needed to compare them",
            seed="",
            decision="few examples may be equal in any data",
        ),
        Threshold(
            name="again",
            value=0.3,
            unit="fraction",
            meaning="examples of a stream on more than one rank beyond which the ranks overlap",
            seed="",
            decision="with two ranks and equal data it is 0.5; data with many equal examples stays below",
        ),
    ),
    outcomes=(
        same(RECORDED, "pass"),
        same(RECORDED, "same", ("R5.2",)),
        same(RECORDED, "overlap", ("R5.2",)),
        same(RECORDED, "perhaps-overlap", meaning="each rank reads all of the data in an order of its own"),
        Outcome(
            name="apart",
            answer=FAULT,
            meaning="tensor-parallel ranks read different batches",
            fix="Seed the loaders alike on all ranks of a tensor-parallel group.",
            explains=("R1.1:not-averaged", "R1.1:partly", "R1.2"),
            proved=True,
        ),
    ),
    find=find,
)
