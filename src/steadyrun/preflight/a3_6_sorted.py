"""A3.6, before training: does each batch mix the classes as the whole data does?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from steadyrun.preflight.same_cause import probe_of, same
from steadyrun.questions.audits.a3_6_sorted import QUESTION as RECORDED
from steadyrun.questions.form import NOTE, Finding, Limits, Outcome, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.text import percent

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench

Labels = npt.NDArray[np.int64]


def find(bench: Bench, limit: Limits) -> Finding:
    batches = _batches(bench)
    if len(batches) < limit["before_batches"]:
        raise MissingSignal(
            "batches",
            f"preflight has {len(batches)} batches with classes, too few to judge their order",
            f"give preflight {limit['before_batches']:g} or more",
        )
    drawn = np.concatenate(batches)
    _, counts = np.unique(drawn, return_counts=True)
    overall = float(counts.max() / counts.sum())
    within = float(np.mean([_largest(batch) for batch in batches]))
    runs = 1 + int(np.count_nonzero(np.diff(drawn)))
    measured = {"within": within, "overall": overall, "runs": float(runs), "classes": float(len(counts))}
    facts = (
        f"The most frequent class makes up {percent(within)} of a batch on average and {percent(overall)} of all "
        f"{len(batches)} batches"
    )
    if len(counts) < 2:
        raise NotApplicable(f"all {len(drawn)} labels are class {int(drawn[0])}")
    chance = _chance_of_sorted(counts)
    few = runs <= limit["runs"] * len(counts) and runs * limit["fewer"] <= _expected_runs(counts)
    if few and within - overall >= limit["apart"] and chance <= -limit["chance"]:
        message = (
            f"{facts}. The {len(drawn):,} labels form {runs} runs for {len(counts)} classes: sorted "
            f"(by chance once in 10^{-chance:.0f})."
        )
        return Finding("sorted", message, measured)
    if within - overall >= limit["apart"] and _uneven(batches) >= limit["sigmas"]:
        return Finding("uneven", f"{facts} (limit {percent(limit['apart'])} apart).", measured)
    return Finding("pass", f"{facts}.", measured)


def _batches(bench: Bench) -> list[Labels]:
    """The classes of each batch, without ignored examples."""
    from steadyrun.preflight.labelled_examples import classes_of

    classes = classes_of(bench)
    if classes is None:
        raise NotApplicable("the batches have no class labels for a cross-entropy")
    counted = [
        labels[labels != classes.ignored] for batch in bench.batches if (labels := classes.of(batch)) is not None
    ]
    return [labels for labels in counted if len(labels) > 1]


def _largest(labels: Labels) -> float:
    return float(np.unique(labels, return_counts=True)[1].max() / len(labels))


def _chance_of_sorted(counts: Labels) -> float:
    """The logarithm (base 10) of the chance that labels in random order are sorted by class."""
    total, kinds = int(counts.sum()), len(counts)
    log = math.lgamma(kinds + 1) + sum(math.lgamma(int(c) + 1) for c in counts) - math.lgamma(total + 1)
    return log / math.log(10)


def _expected_runs(counts: Labels) -> float:
    total = float(counts.sum())
    return 1 + total - float(np.sum(counts.astype(float) ** 2)) / total


def _uneven(batches: list[Labels]) -> float:
    """By how many σ the labels of a batch are more alike than in random order.

    Alike is the fraction of pairs within a batch with the same class. Mean and σ come from shuffled labels.
    """
    generator = np.random.default_rng(0)
    drawn = np.concatenate(batches)
    ends = np.cumsum([len(batch) for batch in batches])[:-1]
    shuffled = [_alike(np.split(generator.permutation(drawn), ends)) for _ in range(100)]
    spread = max(float(np.std(shuffled)), 1e-9)
    return (_alike(batches) - float(np.mean(shuffled))) / spread


def _alike(batches: list[Labels]) -> float:
    pairs = same = 0.0
    for batch in batches:
        counts = np.unique(batch, return_counts=True)[1]
        same += float(np.sum(counts * (counts - 1)))
        pairs += len(batch) * (len(batch) - 1)
    return same / max(1.0, pairs)


QUESTION = probe_of(
    RECORDED,
    asks="Does each batch mix the classes as the whole data does?",
    needs=("loss_fn", "batches"),
    thresholds=(
        Threshold(
            name="before_batches",
            value=4,
            unit="batches",
            meaning="batches with classes needed to judge their order",
            seed="",
            decision="fewer batches show no order",
        ),
        Threshold(
            name="runs",
            value=1.2,
            unit="runs per class",
            meaning="labels count as sorted up to this many runs of equal labels",
            seed="",
            decision="sorted data has one run per class; alternating classes, or a few per batch by design, have many",
        ),
        Threshold(
            name="fewer",
            value=4,
            unit="times",
            meaning="how many times fewer runs than in random order",
            seed="",
            decision="many classes with one or two examples each have one run per class in any order",
        ),
        Threshold(
            name="apart",
            value=0.2,
            unit="difference of fractions",
            meaning="fraction of the largest class within a batch, minus its fraction over all batches",
            seed="",
            decision="shuffled batches of 8 with 10 classes differ by 0.18 by chance, batches of one class by over 0.5",
        ),
        Threshold(
            name="chance",
            value=9,
            unit="powers of ten",
            meaning="how improbable such runs must be in random order",
            seed="",
            decision="fewer than one in 10^9 shuffled sets is sorted; none of 20,000 simulated sets was",
        ),
        Threshold(
            name="sigmas",
            value=6,
            unit="standard deviations",
            meaning="how much more alike the labels of a batch are than shuffled labels",
            seed="",
            decision="1,819 shuffled sets (2 to 100 classes, balanced or not, batches of 2 to 64) reached 4.0 at most",
        ),
    ),
    outcomes=(
        same(RECORDED, "pass"),
        Outcome(
            name="uneven",
            answer=NOTE,
            meaning="batches contain fewer classes than random order would give",
            fix="If this is not intended, shuffle examples instead of batches, or enlarge the stream's shuffle buffer.",
        ),
        same(RECORDED, "sorted", ("C4", "S1", "S3", "D2")),
    ),
    find=find,
)
