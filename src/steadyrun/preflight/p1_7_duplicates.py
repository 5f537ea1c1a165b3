"""P1.7: do training examples come twice, and with one and the same label?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal
from steadyrun.text import percent

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench


def find(bench: Bench, limit: Limits) -> Finding:
    from steadyrun.preflight.labelled_examples import hashes

    digests = hashes(bench.batches, bench.token("pad_id"))
    if not digests:
        raise MissingSignal("batches", "no arrays are found in the batches", "give batches of tensors or arrays")
    changed = _changed_labels(bench, limit)
    if changed is not None:
        return changed
    different = list({batch.tobytes(): batch for batch in digests}.values())  # a list of batches may be repeated
    drawn = np.concatenate(different)
    share = 1 - len(np.unique(drawn)) / len(drawn)
    measured = {"duplicates": share, "examples": float(len(drawn))}
    facts = f"{percent(share)} of {len(drawn)} examples in {len(different)} different batches came before"
    if share >= limit["duplicates"] and len(drawn) >= limit["examples"]:
        return Finding("duplicates", f"{facts} (limit {percent(limit['duplicates'])}).", measured)
    return Finding("pass", f"{facts}.", measured)


def _changed_labels(bench: Bench, limit: Limits) -> Finding | None:
    """Examples that come again, in another batch or at a second pass over the loader, with another class."""
    from steadyrun.preflight.labelled_examples import again, classes_of
    from steadyrun.preflight.loader_trials import length

    classes = classes_of(bench)
    if classes is None:
        return None
    first = _pairs(classes, bench.batches)
    if len(first) < limit["different"] * sum(1 for _ in _examples(classes, bench.batches)):
        return None  # a small world: the same inputs come all the time, and chance may decide their labels
    if (length(bench.task.loader) or 0) > limit["passes"] * len(bench.batches):
        return None  # two looks at the beginning of a long epoch have too little in common
    try:
        second = _pairs(classes, again(bench.task.loader, len(bench.batches)))
    except MissingSignal:
        return None
    common = [key for key in first if key in second and len(first[key]) == len(second[key]) == 1]
    wrong = sum(first[key] != second[key] for key in common)
    chance = _chance([label for key in common for label in (*first[key], *second[key])])
    if wrong < limit["examples"] or 1 - wrong / len(common) > chance + limit["kept"] * (1 - chance):
        return None
    message = (
        f"{wrong} of {len(common)} examples that come in two passes over the loader have another class the second "
        f"time, the same inputs bit for bit; labels dealt out at random would agree at {percent(chance)}, these do at "
        f"{percent(1 - wrong / len(common))}."
    )
    return Finding("labels-change", message, {"changed": wrong / len(common), "compared": float(len(common))})


def _chance(labels: list[int]) -> float:
    """How often two labels dealt out at random agree."""
    shares = np.unique(labels, return_counts=True)[1] / max(1, len(labels))
    return float(np.sum(shares**2))


def _examples(classes: Any, batches: list[Any]) -> Iterable[tuple[int, int]]:
    for batch in batches:
        labels, inputs = classes.of(batch), classes.inputs(batch)
        if labels is not None and inputs is not None and len(labels) == len(inputs):
            yield from zip(inputs.tolist(), labels.tolist(), strict=True)


def _pairs(classes: Any, batches: list[Any]) -> dict[int, set[int]]:
    labels: dict[int, set[int]] = {}
    for key, label in _examples(classes, batches):
        labels.setdefault(key, set()).add(label)
    return labels


QUESTION = Question(
    code="P1.7",
    name="examples that come again",
    asks="Do examples of the training data come more than once, and do they keep their label?",
    why="Inputs and labels that are shuffled apart from each other leave nothing to learn but the mix of the classes. "
    "Many duplicates make an epoch smaller than it looks.",
    needs=("batches", "loss_fn"),
    panel=None,
    thresholds=(
        Threshold(
            name="duplicates",
            value=0.5,
            unit="share of examples",
            meaning="that came before in another batch",
            seed="",
            decision="oversampling and small data sets repeat on purpose: only a note, and only where most are repeats",
        ),
        Threshold(
            name="passes",
            value=4,
            unit="times the batches looked at",
            meaning="length of an epoch up to which a second pass is read",
            seed="",
            decision="of a longer one two looks share less than a quarter, for twice the time of loading",
        ),
        Threshold(
            name="examples",
            value=20,
            unit="examples",
            meaning="below which nothing is said",
            seed="",
            decision="as C4.2: fewer prove nothing",
        ),
        Threshold(
            name="different",
            value=0.93,
            unit="share of examples",
            meaning="different inputs in one pass, below which labels may be a matter of chance",
            seed="",
            decision="as C4.2: collected data has few duplicates, a small world many",
        ),
        Threshold(
            name="kept",
            value=0.1,
            unit="of what is not chance",
            meaning="by which the labels of two passes may agree and still count as shuffled apart",
            seed="",
            decision="shuffled apart they agree by chance alone (0); with a fifth of noise on purpose they keep "
            "0.8, with the "
            "answer of one of several annotators drawn each time about 0.5",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="examples keep their labels and hardly repeat"),
        Outcome(
            name="duplicates",
            answer=NOTE,
            meaning="most examples came before: oversampling, a small data set, or a dataset that ignores its index",
        ),
        Outcome(
            name="labels-change",
            answer=FAULT,
            meaning="the same inputs come with other labels: inputs and labels are shuffled apart",
            fix="Shuffle pairs: one permutation for inputs and labels, or a dataset that returns both.",
            explains=("C4", "S", "P6"),
        ),
    ),
    find=find,
    tried=True,
)
