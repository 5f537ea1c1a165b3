"""R2.4: do the ranks train on data of the same kind?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.curves import Floats
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.rank_data import all_shuffle, splits
from steadyrun.signals.ranks import Group, Matrix, Ranks, matrix_of
from steadyrun.signals.replicas import healthy_until, joined
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    ranks = joined(run)
    groups = ranks.data_parallel
    if not groups:
        raise NotApplicable("it is not known which ranks train on different data")
    most = 0
    for group in groups:
        loss = _complete(ranks.matrix("loss").of(group).before(healthy_until(run)))
        most = max(most, len(loss.steps))
        if (found := _losses(loss, limit) or _inputs(ranks, group, limit)) is not None:
            split = splits(ranks, group) and all_shuffle(ranks, group)
            return found if split else Finding("other", found.message, found.measured, found.step, ranks=found.ranks)
    if most < 2 * limit["steps"]:
        raise MissingSignal("loss", f"steps with the loss of all ranks: {most}, needed: {2 * limit['steps']:g}")
    return Finding("pass", f"The losses of the ranks are alike at {most} steps.", {"steps": float(most)})


def _complete(matrix: Matrix) -> Matrix:
    """The steps that all ranks have."""
    known = np.all(np.isfinite(matrix.values), axis=1)
    return Matrix(matrix.steps[known], matrix.ranks, matrix.values[known])


def _losses(loss: Matrix, limit: Limits) -> Finding | None:
    """A rank whose loss is on one side of the others' at nearly all steps of two windows or more, and far from it."""
    length = limit.count("steps")
    count = len(loss.steps) // length
    if len(loss.ranks) < 2 or not count:
        return None
    shape = (count, length, len(loss.ranks))
    mine, others = (each[: count * length].reshape(shape) for each in (loss.values, _others(loss.values)))
    above, below = (mine > others).mean(axis=1), (mine < others).mean(axis=1)
    far = _relative(np.median(mine, axis=1), np.median(others, axis=1)) >= limit["apart"]
    odd = far & (np.maximum(above, below) >= limit["always"])
    often = np.flatnonzero(odd.sum(axis=0) >= limit["windows"])
    if not len(often):
        return None
    index = int(often[np.argmax(odd.sum(axis=0)[often])])
    windows = np.flatnonzero(odd[:, index])
    here, there = (float(np.median(each[windows, :, index])) for each in (mine, others))
    side, beyond = ("higher", above) if here > there else ("lower", below)
    fraction, step = float(beyond[windows, index].mean()), int(loss.steps[windows[0] * length])
    whose = f"that of rank {loss.ranks[1 - index]}" if len(loss.ranks) == 2 else "the median of all ranks"
    words = f"From step {step} on, the loss of rank {loss.ranks[index]} is {side} than {whose} at {percent(fraction)} "
    words += f"of {len(windows) * length} steps ({shown(here)} and {shown(there)}, medians)."
    measured = {"apart": float(_relative(np.array(here), np.array(there))), "fraction": fraction}
    return Finding("losses", words, measured, step, ranks=loss.ranks if len(loss.ranks) == 2 else (loss.ranks[index],))


def _others(losses: Floats) -> Floats:
    """For each rank the loss that it is compared with: of two ranks the other's, otherwise the median of all."""
    if losses.shape[1] == 2:
        return losses[:, ::-1]
    return np.broadcast_to(np.median(losses, axis=1)[:, None], losses.shape)


def _relative(one: Floats, other: Floats) -> Floats:
    size = np.maximum(np.abs(one), np.abs(other))
    return np.asarray(np.abs(one - other) / np.where(size > 0, size, 1.0))


def _inputs(ranks: Ranks, group: Group, limit: Limits) -> Finding | None:
    """A rank whose inputs have another mean or another standard deviation at all sampled steps."""
    asked = group[: limit.count("ranks")]
    columns = {rank: ranks.block_columns(rank, "inputs/") for rank in asked}
    mean, spread = (
        _complete(matrix_of({rank: found[name] for rank, found in columns.items() if name in found}))
        for name in ("mean", "std")
    )
    if mean.ranks != asked or spread.ranks != asked or len(mean.steps) < limit["samples"]:
        return None
    if not np.array_equal(mean.steps, spread.steps):
        return None
    size = np.max(spread.values, axis=1)
    wide = np.ptp(spread.values, axis=1) / np.where(size > 0, size, 1.0)
    far = np.ptp(mean.values, axis=1) / np.where(size > 0, size, 1.0)
    differs = (wide > limit["inputs"]) | (far > limit["inputs"])
    if not np.all(differs):
        return None
    step, first = int(mean.steps[0]), 0
    row = far[first] > limit["inputs"]
    values, what = (mean.values[first], "mean") if row else (spread.values[first], "standard deviation")
    away = np.abs(values - np.median(values))
    usual, odd = (0, 1) if len(asked) == 2 else (int(np.argmin(away)), int(np.argmax(away)))
    words = f"At all {len(mean.steps)} sampled steps the inputs of the ranks differ: their {what} is "
    words += (
        f"{shown(float(values[usual]))} on rank {asked[usual]} and {shown(float(values[odd]))} on rank {asked[odd]}."
    )
    measured = {"inputs": float(max(wide[first], far[first])), "samples": float(len(mean.steps))}
    return Finding("inputs", words, measured, step, ranks=asked if len(asked) == 2 else (asked[odd],))


_FIX = (
    "Compare the files, labels and transforms that the ranks read: a damaged shard, another version of a file or "
    "library, or code that depends on the rank."
)

QUESTION = Question(
    code="R2.4",
    name="data of the same kind",
    asks="Do the ranks train on data of the same kind?",
    why="A sampler that shuffles and splits the data gives every rank the same kind of examples, so their losses are "
    "alike. A rank that reads damaged files, other labels or another transform spoils a part of every average.",
    needs=("loss",),
    panel=1,
    thresholds=(
        Threshold(
            name="steps",
            value=50,
            unit="steps",
            meaning="the length of a window",
            seed="",
            decision="a few batches may be hard by chance",
        ),
        Threshold(
            name="windows",
            value=2,
            unit="windows",
            meaning="how many must be odd",
            seed="",
            decision="a rank that reads something else goes on with it",
        ),
        Threshold(
            name="always",
            value=0.9,
            unit="fraction of a window",
            meaning="at how many steps the loss must be on one side of the others'",
            seed="",
            decision="50 healthy jobs of two and four ranks stayed below 0.85; chance gives 0.5",
        ),
        Threshold(
            name="apart",
            value=0.2,
            unit="relative difference",
            meaning="how far the medians of a window must be apart",
            seed="",
            decision="the parts of a shuffled set differ by a few percent",
            of="apart",
        ),
        Threshold(
            name="inputs",
            value=0.5,
            unit="of the largest standard deviation",
            meaning="how far means or standard deviations of inputs must be apart",
            seed="",
            decision="batches of a shuffled set differ by a tenth; a missing transform changes them several times",
            of="inputs",
        ),
        Threshold(
            name="samples",
            value=4,
            unit="sampled steps",
            meaning="how many must show other inputs",
            seed="",
            decision="a batch may be odd, four batches in a row are not",
        ),
        Threshold(
            name="ranks",
            value=16,
            unit="ranks",
            meaning="of how many ranks of a group the inputs are read",
            seed="",
            decision="the losses of all ranks are compared",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the ranks train on data of the same kind"),
        Outcome(
            name="losses",
            answer=SUSPECT,
            meaning="the loss of a rank differs, although a sampler shuffles and splits the data",
            fix=_FIX,
            experiment="Evaluate one batch of each rank on rank 0. If the loss differs there too, the data does; if "
            "not, the state or the host of the rank does.",
            explains=("S1", "C4", "V1", "D2"),
        ),
        Outcome(
            name="inputs",
            answer=SUSPECT,
            meaning="the ranks get inputs of another kind, although a sampler shuffles and splits the data",
            fix=_FIX,
            experiment="Print the mean and the standard deviation of ten batches on two ranks. If they differ, compare "
            "how the ranks read and transform the same example.",
            explains=("S1", "C4", "V1", "D2"),
        ),
        Outcome(
            name="other",
            answer=NOTE,
            meaning="the ranks train on data of different kinds",
            fix="No action is needed if each rank has a domain of its own. Otherwise shuffle the data before it is "
            "split.",
        ),
    ),
    find=find,
    always=True,
    special=True,
)
