"""A2.3: has batch normalisation enough examples?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.intent import in_a_row
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown


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
    size = float(np.median(examples.values)) / max(1.0, parts)
    measured = {"examples": size, "layers": float(normed)}
    facts = f"{normed} layers of batch normalisation get {size:g} examples at a time"
    if size > limit["examples"]:
        return Finding("pass", f"{facts}.", measured)
    values = run.maybe("batchnorm_values")
    first = None if values is None else in_a_row(values.values <= limit["values"], limit["samples"])
    if values is not None and first is not None:
        measured["values"] = float(values.values[first])
        message = f"{facts}, one of them {measured['values']:g} values per channel: nothing but their order is left"
        return Finding("degenerate", f"{message}.", measured, values.step_at(first))
    gap = _gap(run, limit.count("recent"))
    if gap is not None:
        measured["gap"] = gap
        if gap > limit["gap"]:
            message = (
                f"{facts}, and validation, which uses running statistics, is {shown(gap)} times the training loss."
            )
            return Finding("unlike-in-evaluation", message, measured)
    return Finding("few", f"{facts}.", measured)


def _gap(run: Signals, recent: int) -> float | None:
    """The middle of the last validations against the training loss of that time."""
    val, loss = run.maybe("val_loss"), run.maybe("loss")
    if val is None or loss is None or len(val) < 2:
        return None
    then = [loss.mean_until(float(step), recent) for step in val.steps[len(val) // 2 :]]
    ratios = [val_loss / base for val_loss, base in zip(val.values[len(val) // 2 :], then, strict=True) if base > 0]
    return float(np.median(ratios)) if ratios else None


QUESTION = Question(
    code="A2.3",
    name="examples for batch normalisation",
    asks="Does batch normalisation see enough examples for its statistics?",
    why="With one or two examples the statistics of a batch are noise: in evaluation the running statistics are "
    "others, "
    "and the model is a different one.",
    needs=("batch",),
    panel=1,
    thresholds=(
        Threshold(
            name="examples",
            value=2,
            unit="examples",
            meaning="at most this many are too few",
            seed="",
            decision="the bug is known from batches of 1 or 2",
        ),
        Threshold(
            name="values",
            value=2,
            unit="values per channel",
            meaning="at most this many leave only a sign",
            seed="",
            decision="arithmetic",
        ),
        Threshold(
            name="gap",
            value=1.5,
            unit="times the training loss",
            meaning="how far validation is above it",
            seed="",
            decision="only asked if batches are this small",
        ),
        Threshold(
            name="samples",
            value=3,
            unit="sampled steps in a row",
            meaning="how many must have too few values per channel",
            seed="",
            decision="not one strange batch",
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
        Outcome(name="pass", answer=PASS, meaning="batch normalisation has examples enough"),
        Outcome(
            name="unlike-in-evaluation",
            answer=FAULT,
            meaning="batch statistics of one or two examples make evaluation a different model",
            fix="Use GroupNorm or LayerNorm, larger batches, or SyncBatchNorm.",
            explains=("C4.2", "S1.3", "D4"),
            may_pass=True,
        ),
        Outcome(
            name="degenerate",
            answer=FAULT,
            meaning="normalised over two values every number becomes plus or minus one",
            fix="Use LayerNorm or GroupNorm, or larger batches.",
            explains=("C1", "C3", "C4", "D2", "D4", "S"),
        ),
        Outcome(
            name="few",
            answer=NOTE,
            meaning="batch normalisation on one or two examples",
            fix="Use GroupNorm, or larger batches.",
        ),
    ),
    find=find,
    always=True,
)
