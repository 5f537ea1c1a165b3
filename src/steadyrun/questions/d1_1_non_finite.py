"""D1.1: is anything that was recorded NaN or infinite?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question
from steadyrun.signals.run import MissingSignal, Signals

_SHOWN = 5


def find(run: Signals, _limit: Limits) -> Finding:
    if not run.has("loss") or not len(run.raw("loss")):
        raise MissingSignal("loss")
    series = run.raw("loss")
    bad = series.steps[~np.isfinite(series.values)]
    first = run.first_nonfinite
    measured = {"bad_losses": float(len(bad)), "losses": float(len(series))}
    if first is None:
        if len(bad):
            message = (
                f"{_list(bad)} of {len(series)} losses are not finite, each in a step that the loss scaler skipped."
            )
            return Finding("skipped-only", message, measured, int(bad[0]))
        return Finding("pass", f"all {len(series)} recorded losses are finite.", measured)
    step, name = first
    what = "the loss" if name == "loss" else "the gradient norm"
    how_many = (
        f"{len(bad)} of {len(series)} recorded losses are not finite (steps {_list(bad)})"
        if len(bad)
        else "every loss is finite"
    )
    return Finding("non-finite", f"{what} is not finite at step {step}; {how_many}.", measured, step)


def _list(steps: object) -> str:
    values = np.asarray(steps)
    more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
    return ", ".join(str(int(value)) for value in values[:_SHOWN]) + more


QUESTION = Question(
    code="D1.1",
    name="non-finite values",
    asks="Is the loss or the gradient NaN or infinite at any recorded step?",
    why="One non-finite update destroys every parameter it touches; nothing after it can be trusted. Loggers often "
    "replace or drop such values, so that a curve looks whole.",
    needs=("loss", "grad_norm"),
    panel=1,
    thresholds=(),
    outcomes=(
        Outcome("pass", PASS, "everything recorded is finite"),
        Outcome("skipped-only", NOTE, "non-finite values only in steps that the loss scaler skipped"),
        Outcome(
            "non-finite",
            FAULT,
            "a destructive update",
            "Go back to the last checkpoint before this step; find the first layer whose output is not finite.",
            edge=("D1.2", "D1.3"),
        ),
    ),
    find=find,
)
