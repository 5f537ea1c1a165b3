"""D1.1: is anything that was recorded NaN or infinite?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown

_SHOWN = 5


def find(run: Signals, limit: Limits) -> Finding:
    bad, count = run.not_finite("loss")
    if not count:
        raise MissingSignal("loss")
    first = run.first_nonfinite
    measured = {"bad_losses": float(len(bad)), "losses": float(count)}
    if first is None:
        if len(bad):
            why = "each in a step that the loss scaler skipped" if run.has("skipped") else "and finite ones follow"
            message = f"{len(bad)} of {count} losses are not finite (steps {_list(bad)}), {why}."
            return Finding("skipped-only", message, measured, int(bad[0]))
        other = _unheard(run) or _hidden(run, limit)
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


def _unheard(run: Signals) -> tuple[int, str] | None:
    """Gradients and validations that are not finite while the loss goes on, if nobody recorded which steps count."""
    if run.has("skipped"):
        return None
    for name, what in (("grad_norm", "gradient norms"), ("val_loss", "validation losses")):
        bad, count = run.not_finite(name) if run.has(name) else (np.array([]), 0)
        absent = name == "val_loss" and count > len(bad) > count / 2  # a table with NaN where nothing was validated
        if len(bad) and not absent:
            return int(bad[0]), f"{len(bad)} of {count} {what} are not finite (steps {_list(bad)}); the loss goes on."
    return None


def _hidden(run: Signals, limit: Limits) -> tuple[int, str] | None:
    """A loss that falls to exactly 0 at once and stays there; one that is learned comes down to it."""
    loss = run.raw("loss")
    alive = np.flatnonzero(loss.values != 0)
    if not len(alive) or len(loss) - int(alive[-1]) <= limit["zeros"]:
        return None
    last = int(alive[-1])
    before = float(np.median(np.abs(loss.values[: last + 1][-limit.count("zeros") :])))
    if before <= limit["level"] * abs(float(loss.values[int(alive[0])])):
        return None
    step = int(loss.steps[last + 1])
    return (
        step,
        f"the loss is exactly 0 from step {step} on, {shown(before)} before: loggers that filter NaN print it so.",
    )


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
            meaning="a record that ends with at least this many losses of exactly 0 may hide NaN",
            seed="",
            decision="loggers that filter NaN print 0",
        ),
        Threshold(
            name="level",
            value=0.1,
            unit="of the first loss",
            meaning="a loss that was lower before its zeros has been learned",
            seed="",
            decision="a loss that is learned to 0 comes down to it; NaN comes at once",
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
