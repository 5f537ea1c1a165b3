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
        raise NotApplicable("no label smoothing is seen" if labels else "no cross-entropy over classes is seen")
    worst = max(smoothed, key=lambda targets: floor(targets.smoothing, targets.classes) / math.log(targets.classes))
    lowest, guess = floor(worst.smoothing, worst.classes), math.log(worst.classes)
    share = lowest / guess
    measured = {"smoothing": worst.smoothing, "floor": lowest, "share": share}
    facts = (
        f"label smoothing {shown(worst.smoothing)} over {worst.classes} classes: a perfect model has a loss of "
        f"{shown(lowest)}, {percent(share)} of that of a guess ({shown(guess)})"
    )
    if share >= limit["hidden"]:
        return Finding("hides-learning", f"{facts}; limit {percent(limit['hidden'])}.", measured)
    if share >= limit["large"]:
        return Finding("large", f"{facts}; more than {percent(limit['large'])}.", measured)
    return Finding("pass", f"{facts}.", measured)


QUESTION = Question(
    code="P3.4",
    name="label smoothing",
    asks="Is the loss of a perfect model well below that of a guess, with the label smoothing in use?",
    why="Smoothing puts a floor under the loss. Near 1 (often 1 - s in the place of s) the targets are nearly uniform: "
    "there is next to nothing to learn, and the loss does not show it.",
    needs=("loss_fn", "batches"),
    panel=None,
    thresholds=(
        Threshold(
            name="hidden",
            value=0.95,
            unit="of ln C",
            meaning="the floor under the loss at which learning is hidden",
            seed="",
            decision="0.9 over 10 classes gives 98%; the usual 0.1 gives 14% (50,000 classes) to 29% (2 classes)",
        ),
        Threshold(
            name="large",
            value=0.6,
            unit="of ln C",
            meaning="the floor under the loss that is worth a note",
            seed="",
            decision="0.3 over 2 classes is the largest in common use, and gives 61%",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="smoothing leaves most of the loss to learn"),
        Outcome(
            name="large",
            answer=NOTE,
            meaning="smoothing leaves less of the loss to learn than usual",
            fix="0.1 is usual.",
        ),
        Outcome(
            name="hides-learning",
            answer=FAULT,
            meaning="the smoothed targets are nearly uniform: there is nothing to learn",
            fix="Use label_smoothing=0.1 or 0; where it was meant to be 1 - s, turn it around.",
            explains=("C4", "S", "P6"),
        ),
    ),
    find=find,
    tried=True,
)
