"""A5.3: is validation data the same each time?"""

from __future__ import annotations

import itertools
from typing import Any

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals


def find(run: Signals, limit: Limits) -> Finding:
    if run.config.get("val_augmented") is True:
        raise NotApplicable("the run declares val_augmented: validation inputs are changed on purpose")
    recorded = [(event.step, event.fields.get("data")) for event in run.events("validation")]
    validations = [(step, data) for step, data in recorded if isinstance(data, dict) and "inputs_hash" in data]
    if len(validations) < 2:
        raise MissingSignal("validation batches", "fewer than two validations gave their batches", _HOW)
    pairs = list(itertools.pairwise(validations))
    same = sum(one["inputs_hash"] == two["inputs_hash"] for (_, one), (_, two) in pairs)
    if same == len(pairs):
        return Finding(
            "pass", f"the same inputs in all {len(validations)} validations.", {"validations": float(len(validations))}
        )
    changed = [step for (_, one), (step, two) in pairs if _changed(one, two, limit)]
    measured = {"validations": float(len(validations)), "changed": float(len(changed))}
    if changed:
        return Finding(
            "changed",
            f"{len(changed)} times the inputs of validation differ from those of the time before, while their class "
            "labels "
            "are the same in the same order: the same examples, changed.",
            measured,
            changed[0],
        )
    if not any("labels_hash" in data for _, data in validations):
        raise NotApplicable("validation has no class labels by which an example could be known again")
    return Finding("drawn", "validation uses other examples each time.", measured)


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
    name="steady validation data",
    asks="Are the inputs of validation the same each time the same examples are used?",
    why="A training transform (a random crop, noise) shared with validation makes its loss worse and noisy.",
    needs=("val_loss", "batches"),
    panel=1,
    thresholds=(
        Threshold(
            name="examples",
            value=32,
            unit="examples",
            meaning="fewer labels may agree by chance",
            seed="",
            decision="two classes, 2^-32",
        ),
        Threshold(
            name="classes",
            value=2,
            unit="classes",
            meaning="labels of one class say nothing",
            seed="",
            decision="all labels would be the same",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="validation data is steady"),
        Outcome(
            name="changed",
            answer=FAULT,
            meaning="validation inputs are changed at random",
            fix="Give validation a transform of its own, without randomness. Where it is meant (an attack, "
            "noise), declare "
            'config={"val_augmented": True}.',
            explains=("C4.2", "S1.3"),
        ),
        Outcome(name="drawn", answer=NOTE, meaning="validation uses other examples each time"),
    ),
    find=find,
    always=True,
)
