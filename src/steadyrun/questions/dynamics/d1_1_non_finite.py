"""D1.1: is anything that was recorded NaN or infinite?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.run_signals import Signals

_SHOWN = 5


def find(run: Signals, limit: Limits) -> Finding:
    bad, count = run.not_finite("loss")
    if not count:
        raise MissingSignal("loss")
    first = run.first_nonfinite
    measured = {"bad_losses": float(len(bad)), "losses": float(count)}
    if first is None:
        if len(bad):
            why = "and finite ones follow" if run.imported else "each in a step that the loss scaler skipped"
            message = f"{len(bad)} of {count} losses are not finite (steps {_list(bad)}), {why}."
            return Finding("skipped-only", message, measured, int(bad[0]))
        other = _others(run, limit["zeros"]) if run.imported else None
        if other is not None:
            return Finding("skipped-only", other[1], measured, other[0])
        return Finding("pass", f"all {count} recorded losses are finite.", measured)
    step, name = first
    what = "the loss" if name == "loss" else "the gradient norm"
    how_many = (
        f"{len(bad)} of {count} recorded losses are not finite (steps {_list(bad)})"
        if len(bad)
        else "every loss is finite"
    )
    return Finding("non-finite", f"{what} is not finite at step {step}; {how_many}.", measured, step)


def _others(run: Signals, zeros: float) -> tuple[int, str] | None:
    """Of a log: gradients and validations that are not finite while the loss goes on; a loss that is 0 to the end."""
    for name, what in (("grad_norm", "gradient norms"), ("val_loss", "validation losses")):
        bad, count = run.not_finite(name) if run.has(name) else (np.array([]), 0)
        absent = name == "val_loss" and count > len(bad) > count / 2  # a table with NaN where nothing was validated
        if len(bad) and not absent:
            return int(bad[0]), f"{len(bad)} of {count} {what} are not finite (steps {_list(bad)}); the loss goes on."
    loss = run.raw("loss")
    alive = np.flatnonzero(loss.values != 0)
    if len(alive) and len(loss) - int(alive[-1]) > zeros:
        step = int(loss.steps[int(alive[-1]) + 1])
        return step, f"the loss is exactly 0 from step {step} on: loggers that filter NaN print it so."
    return None


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
    thresholds=(
        Threshold(
            name="zeros",
            value=5,
            unit="losses",
            meaning="a log that ends with at least this many losses of exactly 0 hides NaN",
            seed="",
            decision="loggers that filter NaN print 0",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="everything recorded is finite"),
        Outcome(
            name="skipped-only",
            answer=NOTE,
            meaning="non-finite values that did no lasting harm: skipped steps, or nothing measured",
        ),
        Outcome(
            name="non-finite",
            answer=FAULT,
            meaning="a destructive update",
            fix="Go back to the last checkpoint before this step; find the first layer whose output is not finite.",
        ),
    ),
    find=find,
)
