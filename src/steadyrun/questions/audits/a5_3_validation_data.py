"""A5.3: is validation data the same each time?"""

from __future__ import annotations

import itertools
from typing import Any

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals


def find(run: Signals, limit: Limits) -> Finding:
    if run.config.get("val_augmented") is True:
        raise NotApplicable("the run declares val_augmented: validation inputs change on purpose")
    recorded = [(event.step, event.fields.get("data")) for event in run.events("validation")]
    validations = [(step, data) for step, data in recorded if isinstance(data, dict) and "inputs_hash" in data]
    if len(validations) < 2:
        raise MissingSignal("validation batches", "fewer than two validations recorded their batches", _HOW)
    pairs = list(itertools.pairwise(validations))
    same = sum(one["inputs_hash"] == two["inputs_hash"] for (_, one), (_, two) in pairs)
    if same == len(pairs):
        message = f"All {len(validations)} validations use the same inputs."
        return Finding("pass", message, {"validations": float(len(validations))})
    changed = [step for (_, one), (step, two) in pairs if _changed(one, two, limit)]
    measured = {"validations": float(len(validations)), "changed": float(len(changed))}
    if changed:
        message = (
            f"In {len(changed)} of {len(pairs)} pairs of successive validations, the labels are the same in the "
            "same order but the inputs differ."
        )
        return Finding("changed", message, measured, changed[0])
    if not any("labels_hash" in data for _, data in validations):
        raise NotApplicable("validation has no class labels that identify its examples")
    message = f"In {len(pairs) - same} of {len(pairs)} pairs of successive validations, the examples differ."
    return Finding("drawn", message, measured)


def _changed(one: dict[str, Any], two: dict[str, Any], limit: Limits) -> bool:
    known = {"labels_hash", "classes", "examples"} <= set(one) & set(two)
    return (
        known
        and one["inputs_hash"] != two["inputs_hash"]
        and one["labels_hash"] == two["labels_hash"]
        and float(two["examples"]) >= limit["examples"]
        and float(two["classes"]) >= limit["classes"]
    )


_HOW = "give run.val(loss, batches=…) the validation batches"

QUESTION = Question(
    code="A5.3",
    name="stable validation data",
    asks="Does validation use the same inputs each time it uses the same examples?",
    why="A training transform (random crop, noise) applied in validation makes its loss worse and noisy.",
    needs=("val_loss", "batches"),
    panel=1,
    thresholds=(
        Threshold(
            name="examples",
            value=32,
            unit="examples",
            meaning="with fewer, labels may agree by chance",
            seed="",
            decision="two classes: probability 2^-32",
        ),
        Threshold(
            name="classes",
            value=2,
            unit="classes",
            meaning="labels of fewer classes do not identify examples",
            seed="",
            decision="with one class all labels agree",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="validation uses the same inputs each time"),
        Outcome(
            name="changed",
            answer=FAULT,
            meaning="validation inputs are randomly augmented",
            fix="Give validation its own transform without randomness. If it is intended (an attack, noise), declare "
            'config={"val_augmented": True}.',
            explains=("C4.2", "S1.3"),
        ),
        Outcome(
            name="drawn",
            answer=NOTE,
            meaning="validation uses different examples each time",
            fix="Validate on a fixed set, so that validation losses can be compared.",
        ),
    ),
    find=find,
    always=True,
)
