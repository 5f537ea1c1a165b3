"""P3.4: does label smoothing leave something to learn?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.smoothed_targets import floor
from steadyrun.text import percent, shown

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench


def find(bench: Bench, limit: Limits) -> Finding:
    labels = bench.first_pass().graph.labels
    smoothed = [targets for targets in labels if targets.smoothing > 0 and targets.classes > 1]
    if not smoothed:
        raise NotApplicable(
            "the loss uses no label smoothing" if labels else "the loss has no cross-entropy over classes"
        )
    worst = max(smoothed, key=lambda targets: floor(targets.smoothing, targets.classes) / math.log(targets.classes))
    lowest, guess = floor(worst.smoothing, worst.classes), math.log(worst.classes)
    share = lowest / guess
    measured = {"smoothing": worst.smoothing, "floor": lowest, "share": share}
    facts = (
        f"With label smoothing {shown(worst.smoothing)} over {worst.classes} classes a perfect model has a loss of "
        f"{shown(lowest)}, {percent(share)} of a uniform guess ({shown(guess)})"
    )
    if share >= limit["hidden"]:
        return Finding("hides-learning", f"{facts}, limit {percent(limit['hidden'])}.", measured)
    if share >= limit["large"]:
        return Finding("large", f"{facts}, limit {percent(limit['large'])}.", measured)
    return Finding("pass", f"{facts}.", measured)


QUESTION = Question(
    code="P3.4",
    name="label smoothing",
    asks="With this label smoothing, is a perfect model's loss well below that of a uniform guess?",
    why="Smoothing puts a floor under the loss. Near 1 (often 1 - s instead of s) the targets are nearly uniform: "
    "almost nothing is left to learn, and the loss does not show it.",
    needs=("loss_fn", "batches"),
    panel=None,
    thresholds=(
        Threshold(
            name="hidden",
            value=0.95,
            unit="fraction of ln C",
            meaning="loss floor above which almost nothing is left to learn",
            seed="",
            decision="0.9 over 10 classes gives 98%; the usual 0.1 gives 14% (50,000 classes) to 29% (2 classes)",
        ),
        Threshold(
            name="large",
            value=0.6,
            unit="fraction of ln C",
            meaning="loss floor that is worth a note",
            seed="",
            decision="0.3 over 2 classes is the largest in common use and gives 61%",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="label smoothing leaves most of the loss to learn"),
        Outcome(
            name="large",
            answer=NOTE,
            meaning="label smoothing is larger than usual",
            fix="Use label_smoothing=0.1.",
        ),
        Outcome(
            name="hides-learning",
            answer=FAULT,
            meaning="label smoothing makes the targets nearly uniform",
            fix="Use label_smoothing=0.1 or 0. Check whether the value is 1 - s instead of s.",
            explains=("C4", "S", "P6"),
        ),
    ),
    find=find,
    tried=True,
)
