"""C1.2: the size of the first gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.clipping import at_backward, divided_later
from steadyrun.signals.curves import Floats
from steadyrun.signals.intent import seen_sum, summed_loss, untrained_start
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.optimizer_settings import maximizes
from steadyrun.signals.run_signals import Signals
from steadyrun.text import apart, shown


@dataclass(frozen=True)
class Reduction:
    """A loss that is a sum: how many times too large it is for a mean, and the number of items."""

    items: float
    times: float
    what: str
    of: str


def find(run: Signals, limit: Limits) -> Finding:
    untrained_start(run)
    summed_loss(run)
    known = known_facts(run, limit)
    classes = known.classes
    norms = run.points("grad_norm")
    if norms.steps[0] > 1:
        first_step = norms.step_at(0)
        raise MissingSignal("grad_norm", f"the first gradient is recorded at step {first_step}", "record from step 0")
    first = float(norms.values[0])
    measured = {"grad_norm": first}
    facts = f"The gradient norm is {shown(first)} at step {norms.step_at(0)}"
    times = _sign(run, limit.count("first"))
    if times is not None and classes is not None and abs(times + 1) < limit["factor"] and not maximizes(run):
        message = f"backward() starts from {shown(times)} times the loss, that is from its negative."
        return Finding("wrong-sign", message, measured | {"times": times}, 0)
    summed = _summed(run, limit, classes)
    if summed is not None and not _undone(run, summed.times, limit["factor"]):
        measured |= {"items": summed.items, "times": summed.times}
        message = f"{summed.what} {shown(summed.times)} times {summed.of}, and the batch has {summed.items:g} items."
        declared = run.config.get("reduction") == "mean"
        return Finding("wrong-reduction" if declared else "perhaps-summed", message, measured, 0)
    if _lost_before_step(run, norms.values, limit.count("first")):
        message = f"{facts} after backward(), but 0 at optimizer.step(), also in the next steps."
        return Finding("erased", message, measured | {"at_backward": first}, 0)
    if _nothing_comes_back(norms.values, classes, limit):
        if (had := _erased(run)) is not None:
            message = f"{facts}, but it was {shown(had)} after backward()."
            return Finding("erased", message, measured | {"at_backward": had}, 0)
        if known.learns:
            raise MissingSignal(
                "grad_norm", f"grad_norm is {shown(first)} while the loss falls: it is rounded or not the gradient norm"
            )
        message = f"{facts} and in the steps after it."
        return Finding("nothing", message, measured, 0, may_pass=classes is None)
    if classes is not None and first < limit["low"]:
        return Finding("too-small", f"{facts} (expected at least {limit['low']:g}).", measured, 0)
    if first > limit["high"]:
        size, most = apart(first, limit["high"])
        message = f"The gradient norm is {size} at step {norms.step_at(0)} (limit {most})."
        return Finding("too-large", message, measured, 0)
    if classes is not None and not limit["band_low"] <= first <= limit["band_high"]:
        band = f"{limit['band_low']:g} to {limit['band_high']:g}"
        return Finding("unusual", f"{facts}, normally {band}.", measured, 0)
    limits = f"limit {limit['high']:g}" if classes is None else f"expected {limit['low']:g} to {limit['high']:g}"
    return Finding("pass", f"{facts} ({limits}).", measured, 0)


def _undone(run: Signals, times: float, close: float) -> bool:
    """Whether the gradients are divided by the same factor before the step: a manual loss scale."""
    later = divided_later(run)
    return later is not None and abs(later / times - 1) < close


def _nothing_comes_back(norms: Floats, classes: int | None, limit: Limits) -> bool:
    """Whether the first gradients are exactly 0; losses other than a cross-entropy get more time: rewards come late."""
    if classes is None:
        return len(norms) >= limit["long"] and not np.any(norms)
    first = limit.count("first")
    return len(norms) >= first and not np.any(norms[:first])


def _lost_before_step(run: Signals, norms: Floats, first: int) -> bool:
    """Whether gradients exist after backward(), but not when the optimizer steps."""
    if run.has("clip_threshold"):  # the clip function then gave both norms
        return False
    applied, skipped = run.maybe("grad_norm_applied"), run.maybe("skipped")
    if applied is None or len(applied) < first or not np.all(norms[:first] > 0):
        return False
    return not np.any(applied.values[:first]) and (skipped is None or not np.any(skipped.values[:first]))


def _erased(run: Signals) -> float | None:
    """The gradient norm after backward() if it was above 0 there."""
    before = at_backward(run)
    return float(before.values[0]) if before is not None and len(before) and before.values[0] > 0 else None


def _sign(run: Signals, most: int) -> float | None:
    """The number that backward() starts from as a multiple of the loss: the median of the first steps."""
    loss, root = run.maybe("loss"), run.maybe("backward_loss")
    if loss is None or root is None or not len(loss) or loss.steps[0] != root.steps[0]:
        return None
    first = min(most, len(loss), len(root))
    same = loss.steps[:first] == root.steps[:first]
    shares = root.values[:first][same] / loss.values[:first][same]
    return float(np.median(shares[np.isfinite(shares)])) if np.any(np.isfinite(shares)) else None


def _summed(run: Signals, limit: Limits, classes: int | None) -> Reduction | None:
    """A loss that is larger than a mean by the number of items in the batch."""
    loss, tolerance = run.maybe("loss"), limit["items"]
    if loss is None or loss.steps[0] > 1 or run.config.get("reduction") not in (None, "mean"):
        return None
    first, count = float(loss.values[0]), seen_sum(run) if classes is None else classes
    candidates = []
    root = run.maybe("backward_loss")
    if root is not None and root.steps[0] == loss.steps[0] and first > 0:
        candidates.append((float(root.values[0]) / first, "backward() starts from", "the loss"))
    if count is not None:
        candidates.append((first / math.log(count), "The first loss is", "that of a uniform guess"))
    candidates = [found for found in candidates if found[0] * (1 + tolerance) > limit["many"]]
    for name in ("tokens", "examples") if candidates else ():
        series = run.maybe(name)
        items = float(series.values[0]) if series is not None and series.steps[0] == loss.steps[0] else 0.0
        for times, what, of in candidates:
            if items >= limit["many"] and abs(math.log(times / items)) < math.log(1 + tolerance):
                return Reduction(items, times, what, of)
    return None


QUESTION = Question(
    code="C1.2",
    name="first gradient norm",
    asks="Is the gradient norm of the first batch between 0.1 and 10, and certainly between 0.001 and 100?",
    why="A first gradient that is far too large comes from a bad initialisation or from a loss that is a sum instead "
    "of a mean. A first gradient near zero means that the data or the loss mask carries no signal.",
    needs=("grad_norm",),
    panel=3,
    thresholds=(
        Threshold(
            name="band_low",
            value=0.1,
            unit="",
            meaning="smallest ordinary norm",
            seed="0.1",
            decision="the rule of thumb; a note",
            of="-grad_norm",
        ),
        Threshold(
            name="band_high",
            value=10,
            unit="",
            meaning="largest ordinary norm",
            seed="10",
            decision="the rule of thumb; a note",
            of="grad_norm",
        ),
        Threshold(
            name="high",
            value=100,
            unit="",
            meaning="norm of a very large first gradient",
            seed="100",
            decision="a note by itself, since the norm follows the scale of the loss; C5 or the number of items "
            "proves the cause",
            of="grad_norm",
        ),
        Threshold(
            name="low",
            value=0.001,
            unit="",
            meaning="norm of next to no gradient",
            seed="0.001",
            decision="a note, since small initial weights also cause it; only a gradient of exactly 0 is a fault",
            of="-grad_norm",
        ),
        Threshold(
            name="items",
            value=0.3,
            unit="",
            meaning="how close the factor must be to the number of items",
            seed="",
            decision="a sentence may have one target fewer than tokens; by chance the factor would have to agree twice",
            of="times",
        ),
        Threshold(
            name="factor",
            value=0.05,
            unit="",
            meaning="how close a factor must be to the expected factor",
            seed="",
            decision="exact up to rounding",
        ),
        Threshold(
            name="many",
            value=8,
            unit="items",
            meaning="with fewer items, a factor does not prove a sum",
            seed="",
            decision="smaller factors have other explanations: output heads, micro-batches, processes",
        ),
        Threshold(
            name="first",
            value=5,
            unit="steps",
            meaning="how many first steps must have a gradient of 0",
            seed="",
            decision="one odd batch does not explain this many",
        ),
        Threshold(
            name="long",
            value=100,
            unit="steps",
            meaning="the same, if the loss is not known to be a cross-entropy",
            seed="",
            decision="a reward may come late",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the first gradient has an ordinary size"),
        Outcome(
            name="unusual",
            answer=NOTE,
            meaning="the first gradient is somewhat larger or smaller than usual",
            fix="No action is needed while the loss falls.",
        ),
        Outcome(
            name="wrong-sign",
            answer=FAULT,
            meaning="backward() runs on the negative loss, so the optimizer climbs",
            fix="Call backward() on the loss itself. Negate only rewards and log-likelihoods.",
        ),
        Outcome(
            name="wrong-reduction",
            answer=FAULT,
            meaning="the loss is a sum over items, but a mean is declared",
            fix="Use the mean over the items that count (reduction='mean'), or declare config={'reduction': 'sum'} "
            "and choose the learning rate for it.",
        ),
        Outcome(
            name="perhaps-summed",
            answer=NOTE,
            meaning="the loss seems to be a sum over items, not a mean",
            fix="Use reduction='mean', or divide the loss by the number of items. If the sum is intended, declare "
            "config={'reduction': 'sum'}.",
        ),
        Outcome(
            name="too-large",
            answer=NOTE,
            meaning="the first gradient is very large",
            fix="Check the initial weights, the scale of the inputs, and whether the loss is a sum over items. No "
            "action is needed while the loss falls.",
        ),
        Outcome(
            name="erased",
            answer=FAULT,
            meaning="the gradients are cleared before the optimizer steps",
            fix="Call optimizer.zero_grad() after optimizer.step() or before backward(), not between backward() and "
            "step().",
        ),
        Outcome(
            name="nothing",
            answer=FAULT,
            meaning="the gradient is zero from the start",
            fix="Print one batch: count the targets that the loss mask keeps, and how many of them differ. Constant "
            "targets and an empty mask give no gradient.",
        ),
        Outcome(
            name="too-small",
            answer=NOTE,
            meaning="the first gradient is close to zero",
            fix="Count the targets that the loss mask keeps, and check that they differ within a batch.",
        ),
    ),
    find=find,
)
