"""P1.8: are validation examples trained on?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steadyrun.questions.configuration.c4_2_generalisation import QUESTION as RECORDED
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.batches import overlap
from steadyrun.signals.missing import MissingSignal
from steadyrun.text import percent

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench

_OVERLAP = next(threshold for threshold in RECORDED.thresholds if threshold.name == "overlap")


def find(bench: Bench, limit: Limits) -> Finding:
    from steadyrun.preflight.labelled_examples import hashes

    if not bench.val_batches:
        raise MissingSignal("val_batches", "there are no validation batches", "give preflight val_batches")
    pad = bench.token("pad_id")
    trained, held_out = hashes(bench.batches, pad), hashes(bench.val_batches, pad)
    if not trained or not held_out:
        raise MissingSignal("batches", "no arrays are found in the batches", "give batches of tensors or arrays")
    drawn = np.concatenate(trained)
    common = overlap(drawn.astype(np.float64), np.concatenate(held_out).astype(np.float64))
    measured = {"overlap": common.share, "compared": float(common.compared)}
    facts = (
        f"{common.shared} of {common.compared} validation examples ({percent(common.share)}) are among the "
        f"{len(drawn)} training examples looked at"
    )
    if not common.shared:
        return Finding("pass", f"{facts}.", measured)
    batches = len({batch.tobytes() for batch in trained})
    different = len(np.unique(drawn)) >= limit["different"] * len(drawn)
    if (
        common.compared >= limit["compared"]
        and common.share >= limit["overlap"]
        and different
        and batches >= limit["batches"]
    ):
        return Finding("leak", f"{facts} (limit {percent(limit['overlap'])}).", measured)
    return Finding("few-shared", f"{facts}, of {batches} different batches.", measured)


QUESTION = Question(
    code="P1.8",
    name="validation against training data",
    asks="Are examples of the validation data also in the training data?",
    why="Validation on what was trained on says how well the model remembers, and the best checkpoint is chosen by it.",
    needs=("batches", "val_batches"),
    panel=None,
    thresholds=(
        _OVERLAP,
        Threshold(
            name="compared",
            value=20,
            unit="examples",
            meaning="of validation, below which it is only a note",
            seed="",
            decision="as C4.2",
        ),
        Threshold(
            name="different",
            value=0.93,
            unit="share of training examples",
            meaning="without repetition, below which those in common may be chance",
            seed="",
            decision="as C4.2: short windows, pairs of words and the inputs of a small world are common to any "
            "two samples",
        ),
        Threshold(
            name="batches",
            value=4,
            unit="different training batches",
            meaning="below which a few batches are learned by heart on purpose, or are one graph",
            seed="",
            decision="a graph whose nodes are split by a mask is one batch; an overfitting test has one to three",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="no validation example is trained on"),
        Outcome(
            name="few-shared",
            answer=NOTE,
            meaning="validation examples are also trained on: a few, or in a small world",
        ),
        Outcome(
            name="leak",
            answer=FAULT,
            meaning="validation contains examples that are trained on",
            fix="Split once, before any shuffling, oversampling or augmentation, and look for examples in both sets.",
            explains=("C4.2", "S1"),
        ),
    ),
    find=find,
)
