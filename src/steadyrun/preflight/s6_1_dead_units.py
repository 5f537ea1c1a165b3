"""S6.1, before training: are hidden units dead?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.preflight.same_cause import probe_of, same
from steadyrun.questions.form import Finding, Limits, Threshold
from steadyrun.questions.signatures.s6_1_dead_units import QUESTION as RECORDED
from steadyrun.signals.missing import NotApplicable
from steadyrun.text import listed, percent

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench


def find(bench: Bench, limit: Limits) -> Finding:
    from steadyrun.preflight.layer_activity import activity

    layers = [layer for layer in activity(bench) if layer.rows >= limit["rows"] and layer.rectified]
    if not layers:
        raise NotApplicable("no ReLU layer has enough rows in the first batches")
    worst = max(layers, key=lambda layer: (layer.dead, layer.silent))
    measured = {"dead": worst.dead, "silent_rows": worst.silent, "rows": float(worst.rows), "units": float(worst.units)}
    dead = [layer.name for layer in layers if layer.dead > limit["dead"]]
    facts = f"{percent(worst.dead)} of the {worst.units} units of {worst.name} are 0 on all {worst.rows} rows"
    if worst.dead > limit["dead"] and worst.silent > limit["silent"]:
        more = f" Dead layers: {listed(dead)}." if len(dead) > 1 else ""
        return Finding("silent", f"{facts} (limit {percent(limit['dead'])}).{more}", measured)
    if dead:
        message = f"{facts}, but {percent(1 - worst.silent)} of the rows activate some unit, as in a sparse layer."
        return Finding("sparse", message, measured)
    return Finding("pass", f"{facts}; no layer has more.", measured)


QUESTION = probe_of(
    RECORDED,
    asks="Are most units of a layer zero on every row of the first batches?",
    needs=("loss_fn", "batches"),
    thresholds=(
        Threshold(
            name="dead",
            value=0.9,
            unit="fraction of units",
            meaning="units that are zero on all rows",
            seed="> 90% units always 0",
            decision="fresh MLPs, CNNs and transformers with ReLU have 0% to 13% on a few dozen rows",
            of="dead",
        ),
        Threshold(
            name="silent",
            value=0.5,
            unit="fraction of rows",
            meaning="rows on which no unit of the layer is active",
            seed="",
            decision="a sparse layer (a dictionary, experts) has active units on every row; a dead one on none",
        ),
        Threshold(
            name="rows",
            value=8,
            unit="rows",
            meaning="rows needed for a judgement",
            seed="",
            decision="a healthy unit is zero on 8 rows once in 256 times",
        ),
    ),
    outcomes=(
        same(RECORDED, "pass", meaning="hidden units are active"),
        same(RECORDED, "silent", ("C4", "S", "P3.5", "P6.1"), "a layer's units are dead"),
        same(RECORDED, "sparse", meaning="most units of a layer are silent, as in a sparse layer"),
    ),
    find=find,
)
