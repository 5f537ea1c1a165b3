"""A2.3: does batch normalisation get enough examples?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.intent import in_a_row
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import counted, shown


def find(run: Signals, limit: Limits) -> Finding:
    modules = run.about("model").get("modules")
    kinds = (
        [str(module.get("class")) for module in modules if isinstance(module, dict)]
        if isinstance(modules, list)
        else []
    )
    normed = sum("BatchNorm" in kind and "Sync" not in kind for kind in kinds)
    if not normed:
        raise NotApplicable("the model has no batch normalisation")
    examples, backwards = run.maybe("examples"), run.maybe("backwards")
    if examples is None:
        raise MissingSignal("examples", how="give run.step(loss, batch=…) the batches")
    parts = float(np.median(backwards.values)) if backwards is not None else 1.0
    seen = run.maybe("batchnorm_examples")  # by the layers themselves; a loop may name one of several micro-batches
    size = float(np.median(examples.values)) / max(1.0, parts) if seen is None else float(np.median(seen.values))
    measured = {"examples": size, "layers": float(normed)}
    number = counted(int(size), "example") if size == int(size) else f"{shown(size)} examples"
    facts = f"Batch normalisation ({counted(normed, 'layer')}) gets {number} per forward pass"
    if size > limit["examples"]:
        return Finding("pass", f"{facts}.", measured)
    values = run.maybe("batchnorm_values")
    first = None if values is None else in_a_row(values.values <= limit["values"], limit["samples"])
    if values is not None and first is not None:
        measured["values"] = float(values.values[first])
        message = f"{facts}; one layer gets {measured['values']:g} values per channel (limit {limit['values']:g})"
        return Finding("degenerate", f"{message}.", measured, values.step_at(first))
    gap = _gap(run, limit.count("recent"))
    if gap is not None:
        measured["gap"] = gap
        if gap > limit["gap"]:
            message = f"{facts}. The validation loss is {shown(gap)} times the training loss (limit {limit['gap']:g})."
            return Finding("unlike-in-evaluation", message, measured)
    return Finding("few", f"{facts}.", measured)


def _gap(run: Signals, recent: int) -> float | None:
    """The median ratio of the last validation losses to the training losses at the same steps."""
    val, loss = run.maybe("val_loss"), run.maybe("loss")
    if val is None or loss is None or len(val) < 2:
        return None
    then = [loss.mean_until(float(step), recent) for step in val.steps[len(val) // 2 :]]
    ratios = [val_loss / base for val_loss, base in zip(val.values[len(val) // 2 :], then, strict=True) if base > 0]
    return float(np.median(ratios)) if ratios else None


QUESTION = Question(
    code="A2.3",
    name="examples for batch normalisation",
    asks="Does batch normalisation get enough examples for its statistics?",
    why="With one or two examples, batch statistics are noise. Evaluation uses the running statistics instead, so it "
    "evaluates a different model.",
    needs=("batch",),
    panel=1,
    thresholds=(
        Threshold(
            name="examples",
            value=2,
            unit="examples",
            meaning="at most this many examples per forward pass are too few",
            seed="",
            decision="the problem is known from batches of 1 or 2",
        ),
        Threshold(
            name="values",
            value=2,
            unit="values per channel",
            meaning="with at most this many values, normalisation leaves only a sign",
            seed="",
            decision="arithmetic: two values always become -1 and +1",
        ),
        Threshold(
            name="gap",
            value=1.5,
            unit="times the training loss",
            meaning="how far above the training loss validation may be",
            seed="",
            decision="applies only to batches this small",
        ),
        Threshold(
            name="samples",
            value=3,
            unit="consecutive sampled steps",
            meaning="how many must have too few values per channel",
            seed="",
            decision="one unusual batch does not count",
        ),
        Threshold(
            name="recent",
            value=50,
            unit="losses",
            meaning="how many training losses before a validation are averaged",
            seed="",
            decision="one training loss is noisy",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="batch normalisation gets enough examples"),
        Outcome(
            name="unlike-in-evaluation",
            answer=FAULT,
            meaning="batches are too small for batch normalisation: evaluation differs",
            fix="Use GroupNorm or LayerNorm, larger batches, or SyncBatchNorm.",
            explains=("C4.2", "S1.3", "D4"),
            may_pass=True,
        ),
        Outcome(
            name="degenerate",
            answer=FAULT,
            meaning="batch normalisation over two values turns every value into ±1",
            fix="Use LayerNorm or GroupNorm, or larger batches.",
            explains=("C1", "C3", "C4", "D2", "D4", "S"),
        ),
        Outcome(
            name="few",
            answer=NOTE,
            meaning="batch normalisation gets only one or two examples",
            fix="Use GroupNorm, or larger batches.",
        ),
    ),
    find=find,
    always=True,
)
