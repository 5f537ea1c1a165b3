"""C4.2, before training: does the training data contain validation examples?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steadyrun.preflight.same_cause import probe_of, same, same_limits
from steadyrun.questions.configuration.c4_2_generalisation import QUESTION as RECORDED
from steadyrun.questions.form import Finding, Limits, Threshold
from steadyrun.signals.batches import overlap
from steadyrun.signals.missing import MissingSignal
from steadyrun.text import counted, percent

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench


def find(bench: Bench, limit: Limits) -> Finding:
    from steadyrun.preflight.labelled_examples import hashes

    if not bench.val_batches:
        raise MissingSignal(
            "val_batches", "preflight has no validation batches", "give preflight the validation loader"
        )
    pad = bench.token("pad_id")
    trained, held_out = hashes(bench.batches, pad), hashes(bench.val_batches, pad)
    if not trained or not held_out:
        raise MissingSignal("batches", "the batches contain no arrays", "give batches of tensors or arrays")
    drawn = np.concatenate(trained)
    common = overlap(drawn.astype(np.float64), np.concatenate(held_out).astype(np.float64))
    measured = {"overlap": common.share, "compared": float(common.compared)}
    facts = (
        f"{common.shared} of {common.compared} validation examples ({percent(common.share)}) are among "
        f"{counted(len(drawn), 'training example')}"
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
        return Finding("leak", f"{facts}, limit {percent(limit['overlap'])}.", measured)
    return Finding(
        "few-shared",
        f"{facts} in {batches} different batches." if batches > 1 else f"{facts} in a single batch.",
        measured,
    )


QUESTION = probe_of(
    RECORDED,
    asks="Does the training data contain validation examples?",
    needs=("batches", "val_batches"),
    thresholds=(
        *same_limits(RECORDED, "overlap", "compared", "different"),
        Threshold(
            name="batches",
            value=4,
            unit="different training batches",
            meaning="batches needed; fewer are an overfitting test or a single graph",
            seed="",
            decision="a graph whose nodes are split by a mask is one batch; an overfitting test has one to three",
        ),
    ),
    outcomes=(
        same(RECORDED, "pass", meaning="the training data contains no validation example"),
        same(RECORDED, "few-shared"),
        same(RECORDED, "leak", ("C4.2", "S1")),
    ),
    find=find,
)
