"""A2.1: is the model in training mode when it trains?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.declared_schedule import number
from steadyrun.signals.intent import in_a_row
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.text import counted


def find(run: Signals, limit: Limits) -> Finding:
    training = run.points("training")
    off = training.values == 0
    measured = {"steps": float(len(training)), "in_evaluation": float(np.sum(off))}
    if not np.any(off):
        parts = _parts(run, limit)
        return parts or Finding("pass", f"The model was in training mode in all {len(training):,} steps.", measured)
    if np.all(off):
        return Finding("never", f"The model was in evaluation mode in all {len(training):,} steps.", measured)
    first = in_a_row(off, limit["steps"])
    validation = None if not first else _validation_at(run, training, first)
    if first is None or validation is None:
        message = f"The model was in evaluation mode in {np.sum(off):,} of {len(training):,} steps."
        return Finding("sometimes", message, measured, training.step_at(int(np.argmax(off))))
    if _sensitive(run) == 0:
        raise NotApplicable("the model has neither dropout nor batch normalisation: the mode changes nothing")
    step = training.step_at(first)
    message = f"After the validation at step {validation}, {np.sum(off):,} steps were trained in evaluation mode, "
    return Finding("left-on", f"{message}the first at step {step}.", measured, step)


def _parts(run: Signals, limit: Limits) -> Finding | None:
    """Modules inside the model that a validation left in evaluation mode."""
    points = run.maybe("modules_in_eval")
    first = None if points is None else in_a_row(points.values > points.values[0], limit["samples"])
    if points is None or not first:
        return None
    validation = _validation_at(run, points, first)
    if validation is None or _sensitive(run) == 0:
        return None
    more = float(points.values[first] - points.values[0])
    message = f"{counted(int(more), 'module')} stayed in evaluation mode after the validation at step {validation}."
    return Finding("parts-left-on", message, {"modules": more}, points.step_at(first))


def _validation_at(run: Signals, points: Points, index: int) -> int | None:
    """The step of the validation between a point and the point before it."""
    before, step = points.step_at(index - 1), points.step_at(index)
    steps = [
        event.step for event in run.events("validation") if event.step is not None and before <= event.step <= step
    ]
    return min(steps, default=None)


def _sensitive(run: Signals) -> int | None:
    """How many modules depend on the mode; None if no validation recorded it."""
    counts = [number(modes.get("sensitive")) for modes in _modes(run)]
    known = [int(count) for count in counts if count is not None]
    return known[-1] if known else None


def _modes(run: Signals) -> list[dict[str, object]]:
    recorded = [event.fields.get("modes") for event in run.events("validation")]
    return [modes for modes in recorded if isinstance(modes, dict)]


QUESTION = Question(
    code="A2.1",
    name="training mode in training",
    asks="Is the model in training mode whenever the optimizer steps?",
    why="model.eval() for a validation that is never undone turns dropout off and freezes batch statistics: the "
    "training loss drops at once, and regularisation is gone.",
    needs=("training",),
    panel=1,
    thresholds=(
        Threshold(
            name="steps",
            value=20,
            unit="steps",
            meaning="how many steps in a row must be in evaluation mode",
            seed="",
            decision="a few steps may be intended",
        ),
        Threshold(
            name="samples",
            value=3,
            unit="sampled steps",
            meaning="the same for modules inside the model",
            seed="",
            decision="as for `steps`",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the model trains in training mode"),
        Outcome(
            name="left-on",
            answer=FAULT,
            meaning="the model stays in evaluation mode after a validation",
            fix="Call model.train() at the start of the training loop, or after each validation.",
            explains=("C4.2", "D2", "S1", "S6", "A2.2"),
        ),
        Outcome(
            name="parts-left-on",
            answer=FAULT,
            meaning="parts of the model stay in evaluation mode after a validation",
            fix="Call model.train() on the whole model after each validation.",
            explains=("C4.2", "D2", "S1", "S6"),
        ),
        Outcome(
            name="never",
            answer=NOTE,
            meaning="the model is trained in evaluation mode from the start",
            fix="Call model.train() before training, unless this is intended.",
        ),
        Outcome(
            name="sometimes",
            answer=NOTE,
            meaning="some steps are trained in evaluation mode",
            fix="Call model.train() before each step.",
        ),
    ),
    find=find,
    always=True,
)
