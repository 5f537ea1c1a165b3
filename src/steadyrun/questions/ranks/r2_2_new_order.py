"""R2.2: does every rank get a new order of the data each epoch?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.batches import period
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.rank_data import epoch_steps
from steadyrun.signals.ranks import Ranks, in_words
from steadyrun.signals.replicas import joined
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    ranks = joined(run)
    shuffled = [rank for rank in ranks.present if ranks.of(rank).loader.get("shuffles") is True]
    if not shuffled:
        raise NotApplicable("no loader is known to shuffle")
    asked = _some(shuffled, limit.count("ranks"))
    lengths = {rank: _repeats(run, ranks, rank, limit) for rank in asked}
    known = [rank for rank, length in lengths.items() if length is not None]
    if not known:
        raise MissingSignal("batch_hash", "no rank has recorded two whole epochs of batches", "let it run on")
    wrong = [rank for rank in known if lengths[rank]]
    if not wrong:
        return Finding("pass", f"The order of batches changes on {len(known)} ranks.", {"ranks": float(len(known))})
    first = lengths[wrong[0]] or 0
    sampler = str(ranks.of(wrong[0]).loader.get("sampler") or "sampler")
    times = len(ranks.series(wrong[0], "batch_hash")[0]) / first
    words = f"The same {first} batches came in the same order {shown(times)} times on {in_words(wrong)}, although the "
    return Finding(
        "repeats", f"{words}{sampler} shuffles.", {"batches": float(first), "epochs": times}, first, ranks=tuple(wrong)
    )


def _some(ranks: list[int], most: int) -> list[int]:
    """At most so many of the ranks: all samplers of a job get their epoch from one loop."""
    chosen = np.linspace(0, len(ranks) - 1, min(most, len(ranks))).round().astype(int)
    return [ranks[index] for index in dict.fromkeys(chosen.tolist())]


def _repeats(run: Signals, ranks: Ranks, rank: int, limit: Limits) -> int | None:
    """After how many batches the order repeats; 0 if it does not, None if two epochs were not recorded."""
    steps, hashes = ranks.series(rank, "batch_hash")
    if resumed := list(ranks.of(rank).seams.values())[1:]:  # A5.2 covers what repeats at a resume
        hashes = hashes[steps >= max(resumed)]
    lengths = [steps for steps in epoch_steps(run, ranks, rank) if limit["batches"] <= steps <= len(hashes) / 2]
    if not lengths:
        return None
    repeated = period(hashes)
    return repeated if repeated in lengths else 0


QUESTION = Question(
    code="R2.2",
    name="a new order on every rank",
    asks="Does the order of the data change from epoch to epoch on every rank?",
    why="DistributedSampler draws its order from seed + epoch. Without set_epoch, every epoch has the same batches on "
    "the same ranks: no rank ever sees the examples of another.",
    needs=("batch",),
    panel=1,
    thresholds=(
        Threshold(
            name="batches",
            value=4,
            unit="batches per epoch",
            meaning="with fewer there is little to shuffle",
            seed="",
            decision="as in A5.1",
        ),
        Threshold(
            name="ranks",
            value=8,
            unit="ranks",
            meaning="of how many ranks the whole order is read",
            seed="",
            decision="all samplers of a job get their epoch from one loop",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the order changes from epoch to epoch"),
        Outcome(
            name="repeats",
            answer=FAULT,
            meaning="every epoch has the same order on every rank although the sampler shuffles",
            fix="Call sampler.set_epoch(epoch) at the start of each epoch.",
            explains=("R2.4", "A5.1", "S1.3", "C4.2"),
        ),
    ),
    find=find,
    always=True,
    special=True,
)
