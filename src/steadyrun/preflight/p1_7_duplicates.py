"""P1.7: do training examples repeat, and do they keep their label?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal
from steadyrun.text import counted, percent

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench


def find(bench: Bench, limit: Limits) -> Finding:
    from steadyrun.preflight.labelled_examples import hashes

    digests = hashes(bench.batches, bench.token("pad_id"))
    if not digests:
        raise MissingSignal("batches", "the batches contain no arrays", "give batches of tensors or arrays")
    changed = _changed_labels(bench, limit)
    if changed is not None:
        return changed
    different = list({batch.tobytes(): batch for batch in digests}.values())  # a list of batches may be repeated
    drawn = np.concatenate(different)
    share = 1 - len(np.unique(drawn)) / len(drawn)
    measured = {"duplicates": share, "examples": float(len(drawn))}
    where = f"{len(different)} different batches" if len(different) > 1 else "a single batch"
    facts = f"{percent(share)} of {counted(len(drawn), 'example')} in {where} repeat an earlier one"
    if share >= limit["duplicates"] and len(drawn) >= limit["examples"]:
        return Finding("duplicates", f"{facts}, limit {percent(limit['duplicates'])}.", measured)
    return Finding("pass", f"{facts}.", measured)


def _changed_labels(bench: Bench, limit: Limits) -> Finding | None:
    """The finding if examples have another class in a second pass over the loader."""
    from steadyrun.preflight.labelled_examples import again, classes_of
    from steadyrun.preflight.loader_trials import length

    classes = classes_of(bench)
    if classes is None:
        return None
    first = _pairs(classes, bench.batches)
    if len(first) < limit["different"] * sum(1 for _ in _examples(classes, bench.batches)):
        return None  # a few inputs repeat all the time, and chance may decide their labels
    if (length(bench.task.loader) or 0) > limit["passes"] * len(bench.batches):
        return None  # two passes over the start of a long epoch share too few examples
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
        f"{wrong} of {len(common)} bit-identical inputs have another class in a second pass over the loader. "
        f"{percent(1 - wrong / len(common))} of the labels agree, by chance {percent(chance)} would."
    )
    return Finding("labels-change", message, {"changed": wrong / len(common), "compared": float(len(common))})


def _chance(labels: list[int]) -> float:
    """How often two random labels agree."""
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
    name="repeated examples and their labels",
    asks="Do training examples repeat, and do they keep their label?",
    why="If inputs and labels are shuffled separately, the model can learn only the class frequencies. Many duplicates "
    "make an epoch smaller than it looks.",
    needs=("batches", "loss_fn"),
    panel=None,
    thresholds=(
        Threshold(
            name="duplicates",
            value=0.5,
            unit="fraction of examples",
            meaning="examples that repeat an earlier one",
            seed="",
            decision="oversampling and small datasets repeat by design: only a note, and only if most repeat",
        ),
        Threshold(
            name="passes",
            value=4,
            unit="times the batches read",
            meaning="longest epoch for which preflight reads a second pass",
            seed="",
            decision="in a longer epoch two passes share less than a quarter, at twice the loading time",
        ),
        Threshold(
            name="examples",
            value=20,
            unit="examples",
            meaning="examples needed for a judgement",
            seed="",
            decision="as in C4.2: fewer examples prove nothing",
        ),
        Threshold(
            name="different",
            value=0.93,
            unit="fraction of examples",
            meaning="different inputs in one pass; with fewer, labels may be a matter of chance",
            seed="",
            decision="as in C4.2: collected data has few duplicates, a small set of inputs many",
        ),
        Threshold(
            name="kept",
            value=0.1,
            unit="fraction of the agreement beyond chance",
            meaning="agreement of two passes that still counts as shuffled",
            seed="",
            decision="separately shuffled labels agree by chance alone (0); with a fifth of deliberate noise they keep "
            "0.8, with one of several annotators drawn each time about 0.5",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="examples keep their labels and rarely repeat"),
        Outcome(
            name="duplicates",
            answer=NOTE,
            meaning="most examples are repeats",
        ),
        Outcome(
            name="labels-change",
            answer=FAULT,
            meaning="labels do not belong to their inputs",
            fix="Shuffle inputs and labels with one permutation, or return both from one dataset.",
            explains=("C4", "S", "P6"),
        ),
    ),
    find=find,
    tried=True,
)
