"""A3.6, before training: are the classes mixed within batches as they are over all of them?"""

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
            f"{len(batches)} batches with classes are too few",
            f"give preflight {limit['before_batches']:g} or more",
        )
    drawn = np.concatenate(batches)
    _, counts = np.unique(drawn, return_counts=True)
    overall = float(counts.max() / counts.sum())
    within = float(np.mean([_largest(batch) for batch in batches]))
    runs = 1 + int(np.count_nonzero(np.diff(drawn)))
    measured = {"within": within, "overall": overall, "runs": float(runs), "classes": float(len(counts))}
    facts = (
        f"the most frequent class of a batch has {percent(within)} of it on average, of all {len(batches)} batches "
        f"{percent(overall)}"
    )
    if len(counts) < 2:
        raise NotApplicable(f"all {len(drawn)} labels are class {int(drawn[0])}")
    chance = _chance_of_sorted(counts)
    few = runs <= limit["runs"] * len(counts) and runs * limit["fewer"] <= _expected_runs(counts)
    if few and within - overall >= limit["apart"] and chance <= -limit["chance"]:
        message = (
            f"{facts}; the {len(drawn)} labels come in {runs} runs for {len(counts)} classes: they are sorted "
            f"(by chance: once in 10^{-chance:.0f})."
        )
        return Finding("sorted", message, measured)
    if within - overall >= limit["apart"] and _uneven(batches) >= limit["sigmas"]:
        return Finding("uneven", f"{facts}: more than {percent(limit['apart'])} apart.", measured)
    return Finding("pass", f"{facts}.", measured)


def _batches(bench: Bench) -> list[Labels]:
    """The classes of each batch, those of ignored examples left out."""
    from steadyrun.preflight.labelled_examples import classes_of

    classes = classes_of(bench)
    if classes is None:
        raise NotApplicable("the batches hold no class per example that a cross-entropy takes")
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
    """How many standard deviations more alike the labels of a batch are than in random order.

    Alike is the share of pairs within a batch that have one class. Mean and deviation are those of shuffled labels.
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
    asks="Are the classes mixed within each batch as they are over all batches?",
    needs=("loss_fn", "batches"),
    thresholds=(
        Threshold(
            name="before_batches",
            value=4,
            unit="batches",
            meaning="with classes, below which nothing is said",
            seed="",
            decision="fewer show no order; an epoch of one batch is mixed whatever its order is",
        ),
        Threshold(
            name="runs",
            value=1.2,
            unit="runs per class",
            meaning="labels of one class in a row, up to which they count as sorted",
            seed="",
            decision="sorted data has one run per class; classes that alternate, or a few per batch on purpose, "
            "have many",
        ),
        Threshold(
            name="fewer",
            value=4,
            unit="times",
            meaning="fewer runs than labels in random order have",
            seed="",
            decision="many classes with an example or two each have one run per class in any order",
        ),
        Threshold(
            name="apart",
            value=0.2,
            unit="share",
            meaning="by which the largest class of a batch is larger than over all batches",
            seed="",
            decision="shuffled batches of 8 with 10 classes are 0.18 apart by chance; those of one class 0.5 and more",
        ),
        Threshold(
            name="chance",
            value=9,
            unit="powers of ten",
            meaning="how unlikely sorted labels must be in random order",
            seed="",
            decision="of shuffled data less than one set in a thousand million is sorted; 20,000 simulated sets: none",
        ),
        Threshold(
            name="sigmas",
            value=6,
            unit="standard deviations",
            meaning="by which the labels of a batch are more alike than shuffled ones",
            seed="",
            decision="1819 shuffled sets (2 to 100 classes, even to one-sided, batches of 2 to 64) came to 4.0 at most",
        ),
    ),
    outcomes=(
        same(RECORDED, "pass"),
        Outcome(
            name="uneven",
            answer=NOTE,
            meaning="batches hold fewer classes than chance would put there: on purpose, or not shuffled enough",
            fix="Where it is not meant: shuffle examples, not batches; enlarge the shuffle buffer of a stream.",
        ),
        same(RECORDED, "sorted", ("C4", "S1", "S3", "D2")),
    ),
    find=find,
)
