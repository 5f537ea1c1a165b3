"""D1.1: is anything that was recorded NaN or infinite?"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from steadyrun.questions.form import FAULT, NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.success import better, has_success_alone
from steadyrun.text import shown

Steps = npt.NDArray[np.int64]

_SHOWN = 5
_NAMES = {"val_loss": "the validation loss", "grad_norm": "the gradient norm"}
_LIKE_A_LOSS = re.compile(r"(?<![a-z])(loss|losses|nll|mse|bce|xent|cross_?entropy|grad|gnorm|gradient)(?![a-z])", re.I)


def find(run: Signals, limit: Limits) -> Finding:
    bad, count = run.not_finite("loss") if run.has("loss") else (np.array([]), 0)
    if not count and not run.own:
        raise MissingSignal("loss")
    first = run.first_nonfinite
    measured = {"bad_losses": float(len(bad)), "losses": float(count)}
    if first is None:
        return _beside(run, limit, measured) or _passing(run, limit, measured, bad, count)
    step, name = first
    what = "the loss" if name == "loss" else "the gradient norm"
    how_many = (
        f"{len(bad)} of {count} recorded losses are not finite (steps {_list(bad)})"
        if len(bad)
        else "every loss is finite"
    )
    return Finding("non-finite", f"{what} is not finite at step {step}; {how_many}.", measured, step)


def _passing(run: Signals, limit: Limits, measured: dict[str, float], bad: Steps, count: int) -> Finding:
    """What the losses and gradients show that did no lasting harm."""
    if len(bad):
        why = "each in a step that the loss scaler skipped" if run.has("skipped") else "and finite ones follow"
        message = f"{len(bad)} of {count} losses are not finite (steps {_list(bad)}), {why}."
        return Finding("skipped-only", message, measured, int(bad[0]))
    for found in (_hidden(run, limit, measured) if count else None, _unheard(run, measured)):
        if found is not None:
            return found
    what = f"all {count} recorded losses" if count else f"all values of {len(run.own)} logged series"
    return Finding("pass", f"{what} are finite.", measured)


def _beside(run: Signals, limit: Limits, measured: dict[str, float]) -> Finding | None:
    """Another series that ends without a finite value, if it is a loss or a gradient, or the success alone."""
    parts = run.about("imported").get("losses")
    known, alone = set(parts) if isinstance(parts, list) else set(), has_success_alone(run)
    for name in ["val_loss", *run.own]:
        needed = name in known or name == "val_loss" or _LIKE_A_LOSS.search(name) or (alone and better(name))
        if not run.has(name) or not needed:
            continue
        bad, count = run.not_finite(name)
        last = run.lasting(name)
        if not len(last) or _absent(len(bad), count):
            continue
        words = f"{_NAMES.get(name, name)} is not finite from step {last[0]} on ({len(last)} of {count} values)"
        never = len(bad) == count
        if never and not _all_zero(run):
            return Finding("never-finite", f"{words}: it was never finite.", measured, int(last[0]))
        if never or len(last) >= limit["in_a_row"]:
            return Finding("part", f"{words}.", measured, int(last[0]))
    return None


def _all_zero(run: Signals) -> bool:
    """Whether every loss is exactly 0, as loggers print that filter NaN."""
    return run.has("loss") and not np.any(run.raw("loss").values)


def _absent(bad: int, count: int) -> bool:
    """Whether a table has NaN where nothing was measured."""
    return count > bad > count / 2


def _unheard(run: Signals, measured: dict[str, float]) -> Finding | None:
    """Other values that are not finite while the loss goes on, if nobody recorded which steps count."""
    names = ["val_loss", *run.own] if run.has("skipped") else ["grad_norm", "val_loss", *run.own]
    for name in names:
        bad, count = run.not_finite(name) if run.has(name) else (np.array([]), 0)
        if len(bad) and not _absent(len(bad), count):
            message = f"{len(bad)} of {count} values of {_NAMES.get(name, name)} are not finite (steps {_list(bad)})"
            goes_on = "; the loss goes on" if run.has("loss") else ""
            return Finding("skipped-only", f"{message}{goes_on}.", measured, int(bad[0]))
    return None


def _hidden(run: Signals, limit: Limits, measured: dict[str, float]) -> Finding | None:
    """A loss that falls to exactly 0 at once and stays there; one that is learned comes down to it."""
    loss = run.raw("loss")
    alive = np.flatnonzero(loss.values != 0)
    if not len(alive) or len(loss) - int(alive[-1]) <= limit["zeros"]:
        return None
    last = int(alive[-1])
    before = float(np.median(np.abs(loss.values[: last + 1][-limit.count("zeros") :])))
    first = abs(float(loss.values[int(alive[0])]))
    if before <= limit["level"] * first:
        return None
    step = int(loss.steps[last + 1])
    message = f"the loss is exactly 0 from step {step} on, {shown(before)} before: loggers that filter NaN print it so."
    learned = before <= limit["high"] * first or _validates_after(run, step, limit.count("in_a_row"))
    return Finding("skipped-only" if learned else "turned-zero", message, measured, step)


def _validates_after(run: Signals, step: int, enough: int) -> bool:
    """Whether validation goes on with finite losses: weights that are NaN have none, so the zeros are rounding."""
    if not run.has("val_loss"):
        return False
    held_out = run.raw("val_loss")
    later = held_out.values[held_out.steps >= step]
    return len(later) >= enough and bool(np.all(np.isfinite(later)))


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
        Threshold(
            name="high",
            value=0.5,
            unit="of the first loss",
            meaning="a loss that was higher right before its zeros cannot have been learned to 0",
            seed="",
            decision="a margin loss that is learned goes through all levels below",
        ),
        Threshold(
            name="in_a_row",
            value=3,
            unit="values",
            meaning="so many at the end of a validation loss, a part of the loss or a gradient that are not finite",
            seed="",
            decision="fewer may be one bad evaluation, or steps that a loss scaler skipped",
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
            name="never-finite",
            answer=SUSPECT,
            meaning="a validation loss or a part of the loss was never finite, while the loss is",
            fix="Evaluate one batch and find the first operation whose result is not finite; an empty validation set, "
            "targets that are all ignored and fp16 overflow in evaluation are the usual causes.",
            experiment="Evaluate one validation batch in float32 and count the targets that are not ignored. If the "
            "loss is finite, the number format overflowed; if no target counts, the labels are wrong; otherwise look "
            "at the inputs of that batch.",
        ),
        Outcome(
            name="turned-zero",
            answer=SUSPECT,
            meaning="the loss became exactly 0 at once: a logger may hide NaN",
            fix="Print the loss and the gradient norm before the logger filters them (logging_nan_inf_filter=False), "
            "and train in bf16 or float32.",
            experiment="Train on from the last checkpoint before the zeros and print the loss itself. If it is NaN, "
            "the run broke there; if it is 0, every target may be ignored.",
        ),
        Outcome(
            name="part",
            answer=FAULT,
            meaning="a validation loss, a part of the loss or a gradient is not finite any more",
            fix="Go back to the last checkpoint before this step, and find the first operation of this part whose "
            "result is not finite.",
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
