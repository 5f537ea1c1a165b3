"""R5.2: do the loaders of all ranks together cover the data?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question
from steadyrun.signals.missing import NotApplicable
from steadyrun.text import percent

if TYPE_CHECKING:
    from steadyrun.preflight.rank_trial import RankTrial


def find(trial: RankTrial, _limit: Limits) -> Finding:
    from steadyrun.preflight.r2_1_different_data import one_dataset

    loaders = [trial.ranks[rank].loader for rank in trial.ranks[0].layout.data_ranks]
    if len(loaders) < 2:
        raise NotApplicable("all ranks compute one batch together (tensor parallel)")
    first = loaders[0]
    orders = [loader.indices for loader in loaders if loader.indices is not None]
    if len(orders) < len(loaders) or not first.size:
        raise NotApplicable(first.why_not or "the length of the dataset is not known")
    if not one_dataset(loaders):
        raise NotApplicable("every rank has a dataset of its own")
    if not all(loader.whole for loader in loaders) or any(loader.redraws for loader in loaders):
        raise NotApplicable("the samplers draw with replacement, or an epoch is too long to read")
    covered = len(np.unique(np.concatenate(orders)))
    missed = first.size - covered
    dropped = len(loaders) * first.batch_size + len(loaders) - 1  # by drop_last, of batches and of the sampler
    measured = {"examples": float(first.size), "covered": float(covered)}
    facts = f"One epoch of {len(loaders)} ranks covers {covered:,} of {first.size:,} examples"
    if missed <= min(dropped, first.size // 2 - 1):
        return Finding("pass", f"{facts}.", measured)
    never = f"{facts}: {percent(missed / first.size)} are not read"
    return Finding("missed" if first.splits else "part", f"{never}.", measured)


QUESTION = Question(
    code="R5.2",
    name="the ranks cover the data",
    asks="Do the loaders of all ranks together read the whole dataset?",
    why="Examples that no rank reads are never learned, and no curve shows it.",
    needs=("several ranks", "a DataLoader"),
    panel=None,
    thresholds=(),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the ranks read the whole dataset"),
        Outcome(
            name="missed",
            answer=FAULT,
            meaning="a part of the dataset is read on no rank",
            fix="Give DistributedSampler num_replicas=WORLD_SIZE and each rank its own rank, or leave both out.",
        ),
        Outcome(name="part", answer=NOTE, meaning="the samplers read a part of the dataset"),
    ),
    find=find,
    tried=True,
)
