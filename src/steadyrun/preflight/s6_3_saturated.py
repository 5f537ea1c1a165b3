"""S6.3, before training: are hidden units saturated?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.preflight.same_cause import probe_of
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Threshold
from steadyrun.questions.signatures.s6_3_saturated import QUESTION as RECORDED
from steadyrun.signals.missing import NotApplicable
from steadyrun.text import percent

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench


def find(bench: Bench, limit: Limits) -> Finding:
    from steadyrun.preflight.layer_activity import activity

    layers = [layer for layer in activity(bench) if layer.kind in {"Tanh", "Sigmoid"} and layer.units > 1]
    if not layers:
        raise NotApplicable("the model has no layer of tanh or sigmoid units")
    worst = max(layers, key=lambda layer: layer.saturated)
    measured = {"saturated": worst.saturated, "rows": float(worst.rows), "units": float(worst.units)}
    facts = (
        f"{percent(worst.saturated)} of the outputs of {worst.name} ({worst.kind}, {worst.units} units, {worst.rows} "
        "rows) lie within 0.01 of the ends of their range"
    )
    if worst.saturated <= limit["ends"]:
        return Finding("pass", f"{facts}; no layer has more.", measured)
    if worst.kind == "Tanh" and bench.config.get("init") == "random":
        return Finding("saturated", f"{facts} with random weights (limit {percent(limit['ends'])}).", measured)
    return Finding("at-the-ends", f"{facts} (limit {percent(limit['ends'])}).", measured)


QUESTION = probe_of(
    RECORDED,
    asks="Are most tanh or sigmoid units saturated?",
    needs=("loss_fn", "batches"),
    thresholds=(
        Threshold(
            name="ends",
            value=0.9,
            unit="fraction of outputs",
            meaning="outputs within 0.01 of an end of the range",
            seed="",
            decision="fresh tanh and sigmoid layers with scaled inputs have 0%; tanh on pixels of 0 to 255 has 98%",
            of="saturated",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="units are not saturated"),
        Outcome(
            name="saturated",
            answer=FAULT,
            meaning="a tanh layer is saturated before training",
            fix="Scale the inputs to a standard deviation of about 1, and initialise with nn.init.xavier_uniform_.",
            explains=("C4", "S", "P6.2"),
        ),
        Outcome(
            name="at-the-ends",
            answer=NOTE,
            meaning="a tanh or sigmoid layer is saturated, as gates may be",
        ),
    ),
    find=find,
)
