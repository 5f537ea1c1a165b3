"""D1.1: NaN or infinite values in the record."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from steadyrun.questions.form import FAULT, NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.success import better, has_success_alone
from steadyrun.text import counted, shown

Steps = npt.NDArray[np.int64]

_SHOWN = 5
_NAMES = {"val_loss": "the validation loss", "grad_norm": "the gradient norm"}
_LIKE_A_LOSS = re.compile(
    r"(?<![a-z])(loss|losses|nll|mse|bce|xent|cross_?entropy|smooth_?l1|huber|grad|gnorm|gradient)(?![a-z])", re.I
)


def find(run: Signals, limit: Limits) -> Finding:
    bad, count = run.not_finite("loss") if run.has("loss") else (np.array([]), 0)
    if not count and not run.own:
        raise MissingSignal("loss")
    first = run.first_nonfinite
    measured = {"bad_losses": float(len(bad)), "losses": float(count)}
    if first is None:
        return _beside(run, limit, measured) or _passing(run, limit, measured, bad, count)
    step, name = first
    what = "The loss" if name == "loss" else "The gradient norm"
    how_many = _bad(bad, count, "losses") if len(bad) else "All recorded losses are finite"
    return Finding("non-finite", f"{what} is not finite at step {step}. {how_many}.", measured, step)


def _passing(run: Signals, limit: Limits, measured: dict[str, float], bad: Steps, count: int) -> Finding:
    """Non-finite values that did no lasting harm, or a pass."""
    if len(bad):
        steps = "this step" if len(bad) == 1 else "these steps"
        why = f"The loss scaler skipped {steps}" if run.has("skipped") else "Finite losses follow"
        return Finding("skipped-only", f"{_bad(bad, count, 'losses')}. {why}.", measured, int(bad[0]))
    for found in (_hidden(run, limit, measured) if count else None, _unheard(run, measured)):
        if found is not None:
            return found
    what = f"All {count} recorded losses" if count else f"All values of {len(run.own)} logged series"
    return Finding("pass", f"{what} are finite.", measured)


def _beside(run: Signals, limit: Limits, measured: dict[str, float]) -> Finding | None:
    """Another series without finite values at its end: a loss, a gradient, or the only measure of success."""
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
        what = _NAMES.get(name, name)
        what = f"{what[0].upper()}{what[1:]}" if name in _NAMES else what
        never = len(bad) == count
        if never and not _all_zero(run):
            message = f"{what} was never finite ({counted(count, 'value')} from step {last[0]} on)."
            return Finding("never-finite", message, measured, int(last[0]))
        if never or len(last) >= limit["in_a_row"]:
            message = f"{what} is not finite from step {last[0]} on ({len(last)} of {count} values)."
            return Finding("part", message, measured, int(last[0]))
    return None


def _all_zero(run: Signals) -> bool:
    """Whether every loss is exactly 0: loggers that filter NaN print 0."""
    return run.has("loss") and not np.any(run.raw("loss").values)


def _absent(bad: int, count: int) -> bool:
    """Whether NaN only marks steps without a measurement, as in a table."""
    return count > bad > count / 2


def _unheard(run: Signals, measured: dict[str, float]) -> Finding | None:
    """Other values that are not finite while the loss stays finite, if skipped steps are not recorded."""
    names = ["val_loss", *run.own] if run.has("skipped") else ["grad_norm", "val_loss", *run.own]
    for name in names:
        bad, count = run.not_finite(name) if run.has(name) else (np.array([]), 0)
        if len(bad) and not _absent(len(bad), count):
            message = _bad(bad, count, f"values of {_NAMES.get(name, name)}")
            goes_on = "; the loss stays finite" if run.has("loss") else ""
            return Finding("skipped-only", f"{message}{goes_on}.", measured, int(bad[0]))
    return None


def _hidden(run: Signals, limit: Limits, measured: dict[str, float]) -> Finding | None:
    """A loss that drops to exactly 0 at once and stays there; a learned loss of 0 is reached gradually."""
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
    message = (
        f"The loss is exactly 0 from step {step} on, before that {shown(before)}. Loggers that filter NaN print 0."
    )
    learned = before <= limit["high"] * first or _validates_after(run, step, limit.count("in_a_row"))
    return Finding("skipped-only" if learned else "turned-zero", message, measured, step)


def _validates_after(run: Signals, step: int, enough: int) -> bool:
    """Whether later validation losses are finite: NaN weights give none, so the zeros are rounding."""
    if not run.has("val_loss"):
        return False
    held_out = run.raw("val_loss")
    later = held_out.values[held_out.steps >= step]
    return len(later) >= enough and bool(np.all(np.isfinite(later)))


def _bad(steps: object, count: int, what: str) -> str:
    """How many values are not finite and at which steps, such as "3 of 200 losses are not finite (steps 7, 8, 9)"."""
    many = len(np.asarray(steps))
    verb, at = ("is", "step") if many == 1 else ("are", "steps")
    return f"{many} of {count} {what} {verb} not finite ({at} {_list(steps)})"


def _list(steps: object) -> str:
    values = np.asarray(steps)
    more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
    return ", ".join(str(int(value)) for value in values[:_SHOWN]) + more


QUESTION = Question(
    code="D1.1",
    name="non-finite values",
    asks="Is the loss or the gradient NaN or infinite at any recorded step?",
    why="A single non-finite update destroys every parameter it touches, and later values cannot be trusted. Loggers "
    "often replace or drop such values, so that a curve looks complete.",
    needs=("loss", "grad_norm"),
    panel=1,
    thresholds=(
        Threshold(
            name="zeros",
            value=5,
            unit="losses",
            meaning="a record that ends with this many losses of exactly 0 may hide NaN",
            seed="",
            decision="loggers that filter NaN print 0",
        ),
        Threshold(
            name="level",
            value=0.1,
            unit="of the first loss",
            meaning="a loss that was lower before its zeros was learned",
            seed="",
            decision="a loss that is learned to 0 falls gradually; NaN comes at once",
        ),
        Threshold(
            name="high",
            value=0.5,
            unit="of the first loss",
            meaning="a loss that was higher right before its zeros was not learned to 0",
            seed="",
            decision="a margin loss that is learned passes through all levels below",
        ),
        Threshold(
            name="in_a_row",
            value=3,
            unit="values",
            meaning="how many last values of a validation loss, a part of the loss or a gradient are not finite",
            seed="",
            decision="fewer may be a single bad evaluation, or steps that a loss scaler skipped",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="all recorded values are finite"),
        Outcome(
            name="skipped-only",
            answer=NOTE,
            meaning="some values are not finite, without lasting harm",
            fix="No action is needed while the loss falls; look at the batches of these steps if it happens again.",
        ),
        Outcome(
            name="never-finite",
            answer=SUSPECT,
            meaning="a validation loss or a part of the loss was never finite",
            fix="Evaluate one batch and find the first operation with a non-finite result. Usual causes are an empty "
            "validation set, targets that are all ignored and fp16 overflow in evaluation.",
            experiment="Evaluate one validation batch in float32 and count the targets that are not ignored. If the "
            "loss is finite, fp16 overflowed; if no target counts, the labels are wrong; otherwise check the inputs "
            "of that batch.",
        ),
        Outcome(
            name="turned-zero",
            answer=SUSPECT,
            meaning="the loss dropped to exactly 0: the logger may hide NaN",
            fix="Print the loss and the gradient norm before the logger filters them (logging_nan_inf_filter=False), "
            "and train in bf16 or float32.",
            experiment="Continue from the last checkpoint before the zeros and print the loss itself. If it is NaN, "
            "the run broke there; if it is 0, all targets may be ignored.",
        ),
        Outcome(
            name="part",
            answer=FAULT,
            meaning="a validation loss, a part of the loss or a gradient became non-finite",
            fix="Go back to the last checkpoint before this step, and find the first operation with a non-finite "
            "result.",
        ),
        Outcome(
            name="non-finite",
            answer=FAULT,
            meaning="the loss or the gradient is NaN or infinite",
            fix="Go back to the last checkpoint before this step, and find the first layer with a non-finite output.",
        ),
    ),
    find=find,
)
