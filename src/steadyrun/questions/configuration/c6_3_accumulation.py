"""C6.3: the accumulated gradient is a mean over the micro-batches."""

from __future__ import annotations

import math

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.clipping import divided_later
from steadyrun.signals.facts import LEARNED, Facts
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    declared = run.declared("accumulation")
    backwards = run.maybe("backwards")
    observed = float(np.median(backwards.values)) if backwards is not None else None
    count = declared if declared is not None else observed
    if count is None:
        raise NotApplicable("no accumulation is declared, and backward passes are not recorded", "accumulation")
    if count < 2:
        raise NotApplicable("gradients are not accumulated: each step has a single backward pass")
    if declared is None and len({group.get("optimizer") for group in run.listed("param_groups")}) > 1:
        raise NotApplicable("several optimizers step: their backward passes belong to several losses")
    if run.config.get("reduction") == "sum":
        raise NotApplicable("the config declares reduction='sum', so gradients may add up")
    root, loss = run.points("backward_loss"), run.points("loss")
    both = np.isin(root.steps, loss.steps)
    given = loss.values[np.isin(loss.steps, root.steps)]
    usable = given != 0
    if not np.any(usable):
        raise NotApplicable("the loss is zero at every step")
    times = float(np.median(root.values[both][usable] / given[usable]))
    measured = {"times": times, "accumulation": count}
    facts = (
        f"Over {count:g} micro-batches the losses given to backward() add up to {shown(times)}x the loss of the step"
    )
    if abs(times / count - 1) > limit["close"]:
        if declared is None:
            raise NotApplicable(f"a step has {count:g} backward passes, but no accumulation is declared")
        if abs(times - 1) <= limit["mean"]:
            return Finding("pass", f"{facts}.", measured)
        return Finding("unclear", f"{facts}; a mean gives 1x, a sum {count:g}x.", measured)
    if (by_hand := divided_later(run)) is not None and abs(by_hand / count - 1) <= limit["close"]:
        return Finding("pass", f"{facts}; the gradients are then divided by {shown(by_hand)}.", measured)
    if (
        declared is not None
        and observed == count
        and _undivided(run, count, known_facts(run, limit), limit.count("recent"))
    ):
        return Finding("not-divided", f"{facts}; a mean gives 1x.", measured, loss.step_at(0))
    fix = (
        f"Look at both calls: if backward() gets undivided losses, call (loss / {count:g}).backward(); if run.step "
        f"gets a loss already divided by {count:g}, pass it the undivided loss."
    )
    return Finding("perhaps-not-divided", f"{facts}; a mean gives 1x.", measured, fix=fix)


def _undivided(run: Signals, count: float, known: Facts, recent: int) -> bool:
    """Whether the loss given to run.step is undivided, judged by the first loss or by validation."""
    loss = run.points("loss")
    if known.classes is not None and known.start != LEARNED:
        return _closer(float(loss.values[0]), math.log(known.classes), count)
    val = run.maybe("val_loss")
    return val is not None and _closer(loss.mean_until(float(val.steps[0]), recent), float(val.values[0]), count)


def _closer(value: float, whole: float, count: float) -> bool:
    """Whether `value` is nearer to `whole` than to `whole` divided by `count`."""
    return value > 0 and whole > 0 and abs(math.log(value / whole)) < abs(math.log(value * count / whole))


QUESTION = Question(
    code="C6.3",
    name="gradient accumulation",
    asks="Over k micro-batches, is the gradient their mean and not their sum?",
    why="Without the division by k the gradient is k times too large: clipping sees another norm, and SGD takes steps "
    "k times too long. Adam hides it.",
    needs=("backward_loss", "loss", "accumulation"),
    panel=3,
    thresholds=(
        Threshold(
            name="close",
            value=0.05,
            unit="fraction",
            meaning="how close to k the factor must be",
            seed="exactly k times",
            decision="the rule of thumb, up to rounding and micro-batches of unequal size",
            of="times",
        ),
        Threshold(
            name="mean",
            value=0.5,
            unit="",
            meaning="how close to 1 the factor of a mean must be",
            seed="",
            decision="any other factor is neither a mean nor a sum",
        ),
        Threshold(
            name="recent",
            value=10,
            unit="losses",
            meaning="how many training losses before the first validation are averaged",
            seed="",
            decision="a single training loss is noisy",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the accumulated gradient is a mean"),
        Outcome(
            name="unclear",
            answer=NOTE,
            meaning="the accumulated gradient is neither a mean nor a sum",
            fix="Check what divides the loss before backward(): it should be k, the number of micro-batches.",
        ),
        Outcome(
            name="perhaps-not-divided",
            answer=NOTE,
            meaning="the gradients of the micro-batches seem to be summed",
            fix="Call (loss / k).backward() for each of the k micro-batches, unless run.step gets the divided loss.",
        ),
        Outcome(
            name="not-divided",
            answer=FAULT,
            meaning="the gradients of the micro-batches are summed instead of averaged",
            fix="Call (loss / k).backward() for each of the k micro-batches, and pass run.step the mean of the k "
            "losses before that division.",
        ),
    ),
    find=find,
)
