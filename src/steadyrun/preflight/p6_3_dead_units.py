"""P6.3: are units dead before training begins?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import NotApplicable
from steadyrun.text import listed, percent

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench


def find(bench: Bench, limit: Limits) -> Finding:
    from steadyrun.preflight.layer_activity import activity

    layers = [layer for layer in activity(bench) if layer.rows >= limit["rows"] and layer.rectified]
    if not layers:
        raise NotApplicable("no layer of units that can be silent was seen on enough rows")
    worst = max(layers, key=lambda layer: (layer.dead, layer.silent))
    measured = {"dead": worst.dead, "silent_rows": worst.silent, "rows": float(worst.rows), "units": float(worst.units)}
    dead = [layer.name for layer in layers if layer.dead > limit["dead"]]
    facts = f"{percent(worst.dead)} of the {worst.units} units of {worst.name} are 0 on all {worst.rows} rows"
    if worst.dead > limit["dead"] and worst.silent > limit["silent"]:
        more = f"; so are those of {listed(dead)}" if len(dead) > 1 else ""
        return Finding("dead", f"{facts} (limit {percent(limit['dead'])}){more}.", measured)
    if dead:
        message = f"{facts}; but {percent(1 - worst.silent)} of the rows excite some unit, as in a sparse layer."
        return Finding("sparse", message, measured)
    return Finding("pass", f"{facts}, at the most.", measured)


QUESTION = Question(
    code="P6.3",
    name="dead units",
    asks="Are most units of a layer zero on every row of the first batches?",
    why="A ReLU that is zero everywhere has no gradient: a layer of them cuts the model in two, for good.",
    needs=("loss_fn", "batches"),
    panel=None,
    thresholds=(
        Threshold(
            name="dead",
            value=0.9,
            unit="share of units",
            meaning="units that are zero on all rows",
            seed="> 90% units always 0",
            decision="fresh MLPs, CNNs and transformers with ReLU have 0% to 13% on a few dozen rows",
            of="dead",
        ),
        Threshold(
            name="silent",
            value=0.5,
            unit="share of rows",
            meaning="rows on which not one unit of the layer is active",
            seed="",
            decision="a sparse layer (a dictionary, experts) has active units on every row; a dead one on none",
        ),
        Threshold(
            name="rows",
            value=8,
            unit="rows",
            meaning="fewer rows prove little",
            seed="",
            decision="a healthy unit is zero on 8 rows once in 256 times",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="units are alive"),
        Outcome(
            name="dead",
            answer=FAULT,
            meaning="a layer whose units are dead",
            fix="Look at the layer's bias and at the scale of its input; use the init made for ReLU.",
            explains=("C4", "S", "P3.5", "P6.1"),
        ),
        Outcome(name="sparse", answer=NOTE, meaning="most units of a layer are silent, but no row is"),
    ),
    find=find,
)
