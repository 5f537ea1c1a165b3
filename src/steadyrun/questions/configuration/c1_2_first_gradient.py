"""C1.2: has the first gradient a size that training can start from?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.clipping import at_backward, divided_later
from steadyrun.signals.curves import Floats
from steadyrun.signals.intent import summed_loss, untrained_start
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.optimizer_settings import maximizes
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown


@dataclass(frozen=True)
class Reduction:
    """How often the loss counts an item, as far as the first step tells."""

    items: float
    times: float
    what: str


def find(run: Signals, limit: Limits) -> Finding:
    untrained_start(run)
    summed_loss(run)
    known = known_facts(run, limit)
    classes = known.classes
    norms = run.points("grad_norm")
    if norms.steps[0] > 1:
        first_step = norms.step_at(0)
        raise MissingSignal(
            "grad_norm", f"the first recorded gradient is that of step {first_step}", "record from step 0"
        )
    first = float(norms.values[0])
    measured = {"grad_norm": first}
    facts = f"gradient norm {shown(first)} at step {norms.step_at(0)}"
    times = _sign(run, limit.count("first"))
    if times is not None and classes is not None and abs(times + 1) < limit["factor"] and not maximizes(run):
        message = f"{facts}; backward() starts from {shown(times)} times the loss: from its negative."
        return Finding("wrong-sign", message, measured | {"times": times}, 0)
    summed = _summed(run, limit, classes)
    if summed is not None and not _undone(run, summed.times, limit["factor"]):
        measured |= {"items": summed.items, "times": summed.times}
        message = (
            f"{facts}; {summed.what} is {shown(summed.times)} times too large for a mean: the batch has "
            f"{summed.items:g} items."
        )
        declared = run.config.get("reduction") == "mean"
        return Finding("wrong-reduction" if declared else "perhaps-summed", message, measured, 0)
    if _lost_before_step(run, norms.values, limit.count("first")):
        message = f"{facts} when backward ended; the optimizer found none, in this step and the next ones."
        return Finding("erased", message, measured | {"at_backward": first}, 0)
    if _nothing_comes_back(norms.values, classes, limit):
        if (had := _erased(run)) is not None:
            message = f"{facts}, although it was {shown(had)} when backward ended."
            return Finding("erased", message, measured | {"at_backward": had}, 0)
        if known.learns:
            raise MissingSignal("grad_norm", f"{facts}, and the loss falls: it is rounded, or not the norm")
        message = f"{facts}, and in the steps after it: nothing comes back."
        return Finding("nothing", message, measured, 0, may_pass=classes is None)
    if classes is not None and first < limit["low"]:
        return Finding("too-small", f"{facts}, limit {limit['low']:g}: hardly anything comes back.", measured, 0)
    if first > limit["high"]:
        return Finding("too-large", f"{facts}, above {limit['high']:g}.", measured, 0)
    if classes is not None and not limit["band_low"] <= first <= limit["band_high"]:
        band = f"{limit['band_low']:g} to {limit['band_high']:g}"
        return Finding("unusual", f"{facts}, outside {band}.", measured, 0)
    return Finding("pass", f"{facts} (limits {limit['low']:g} and {limit['high']:g}).", measured, 0)


def _undone(run: Signals, times: float, close: float) -> bool:
    """Whether gradients are divided by the factor before the step: a loss scale by hand."""
    later = divided_later(run)
    return later is not None and abs(later / times - 1) < close


def _nothing_comes_back(norms: Floats, classes: int | None, limit: Limits) -> bool:
    """Exactly nothing in the first steps of a cross-entropy; a reward may stay away for longer."""
    if classes is None:
        return len(norms) >= limit["long"] and not np.any(norms)
    first = limit.count("first")
    return len(norms) >= first and not np.any(norms[:first])


def _lost_before_step(run: Signals, norms: Floats, first: int) -> bool:
    """Whether there are gradients and the optimizer, which steps, finds none."""
    if run.has("clip_threshold"):  # the clip function then told both norms
        return False
    applied, skipped = run.maybe("grad_norm_applied"), run.maybe("skipped")
    if applied is None or len(applied) < first or not np.all(norms[:first] > 0):
        return False
    return not np.any(applied.values[:first]) and (skipped is None or not np.any(skipped.values[:first]))


def _erased(run: Signals) -> float | None:
    """The gradient norm when backward ended, where it was there and gone a moment later."""
    before = at_backward(run)
    return float(before.values[0]) if before is not None and len(before) and before.values[0] > 0 else None


def _sign(run: Signals, most: int) -> float | None:
    """What backward() starts from, as a multiple of the loss, typical of the first steps."""
    loss, root = run.maybe("loss"), run.maybe("backward_loss")
    if loss is None or root is None or not len(loss) or loss.steps[0] != root.steps[0]:
        return None
    first = min(most, len(loss), len(root))
    same = loss.steps[:first] == root.steps[:first]
    shares = root.values[:first][same] / loss.values[:first][same]
    return float(np.median(shares[np.isfinite(shares)])) if np.any(np.isfinite(shares)) else None


def _summed(run: Signals, limit: Limits, classes: int | None) -> Reduction | None:
    """Whether the loss is larger than a mean would be by just the number of items in the batch."""
    loss, tolerance = run.maybe("loss"), limit["items"]
    if loss is None or loss.steps[0] > 1 or run.config.get("reduction") not in (None, "mean"):
        return None
    first, count = float(loss.values[0]), classes
    candidates = []
    root = run.maybe("backward_loss")
    if root is not None and root.steps[0] == loss.steps[0] and first > 0:
        candidates.append((float(root.values[0]) / first, "the number that backward() starts from"))
    if count is not None:
        candidates.append((first / math.log(count), "the loss"))
    candidates = [(times, what) for times, what in candidates if times * (1 + tolerance) > limit["many"]]
    for name in ("tokens", "examples") if candidates else ():
        series = run.maybe(name)
        items = float(series.values[0]) if series is not None and series.steps[0] == loss.steps[0] else 0.0
        for times, what in candidates:
            if items >= limit["many"] and abs(math.log(times / items)) < math.log(1 + tolerance):
                return Reduction(items, times, what)
    return None


QUESTION = Question(
    code="C1.2",
    name="first gradient norm",
    asks="Is the gradient norm of the first batch between 0.1 and 10, and certainly between 0.001 and 100?",
    why="A first gradient that is far too large comes from a broken initialisation or from a loss that is summed "
    "where a mean was meant; one of nearly zero means that the data or the loss mask carries no signal.",
    needs=("grad_norm",),
    panel=3,
    thresholds=(
        Threshold(
            name="band_low",
            value=0.1,
            unit="",
            meaning="smallest unremarkable norm",
            seed="0.1",
            decision="as specified; a note",
            of="-grad_norm",
        ),
        Threshold(
            name="band_high",
            value=10,
            unit="",
            meaning="largest unremarkable norm",
            seed="10",
            decision="as specified; a note",
            of="grad_norm",
        ),
        Threshold(
            name="high",
            value=100,
            unit="",
            meaning="norm above which the start is looked into",
            seed="100",
            decision="by itself a note, since the norm follows the scale of the loss; the cause is proved by C5 "
            "or by the "
            "number of items",
            of="grad_norm",
        ),
        Threshold(
            name="low",
            value=0.001,
            unit="",
            meaning="norm below which nothing comes back",
            seed="0.001",
            decision="a note, since small initial weights also do it; a fault is a gradient of exactly zero",
            of="-grad_norm",
        ),
        Threshold(
            name="items",
            value=0.3,
            unit="",
            meaning="how close the factor must be to the number of items",
            seed="",
            decision="targets may be one fewer than tokens per sentence; chance agreement needs the same factor twice",
            of="times",
        ),
        Threshold(
            name="factor",
            value=0.05,
            unit="",
            meaning="how close a factor must be to the one that is expected",
            seed="",
            decision="exact up to rounding",
        ),
        Threshold(
            name="many",
            value=8,
            unit="items",
            meaning="fewer items prove no sum",
            seed="",
            decision="smaller factors have other explanations: heads, micro-batches, processes",
        ),
        Threshold(
            name="first",
            value=5,
            unit="steps",
            meaning="how long the gradient must be zero from the start",
            seed="",
            decision="so many are not an accident of one batch",
        ),
        Threshold(
            name="long",
            value=100,
            unit="steps",
            meaning="the same if the loss is not known to be a cross-entropy",
            seed="",
            decision="a reward may stay away for longer",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the first gradient has an ordinary size"),
        Outcome(name="unusual", answer=NOTE, meaning="outside the usual band, inside the hard limits"),
        Outcome(
            name="wrong-sign",
            answer=FAULT,
            meaning="the negative of the loss is differentiated: the optimizer climbs",
            fix="Call backward() on the loss itself; a minus belongs to rewards and log-likelihoods only.",
        ),
        Outcome(
            name="wrong-reduction",
            answer=FAULT,
            meaning="the loss is summed over items where a mean is meant",
            fix="Reduce the loss with a mean over the items that count (reduction='mean'), or declare "
            "config={'reduction': 'sum'} and choose the learning rate for it.",
        ),
        Outcome(
            name="perhaps-summed",
            answer=NOTE,
            meaning="the loss seems to be summed over items; that a mean is meant is not declared (config reduction)",
        ),
        Outcome(
            name="too-large",
            answer=NOTE,
            meaning="the first gradient is very large: the initial weights are looked at",
        ),
        Outcome(
            name="erased",
            answer=FAULT,
            meaning="gradients are there when backward ends and gone when the optimizer steps",
            fix="Call zero_grad() after the optimizer's step (or before backward), not between backward and step.",
        ),
        Outcome(
            name="nothing",
            answer=FAULT,
            meaning="the batch gives no gradient: a loss mask that is zero everywhere, or constant targets",
            fix="Print one batch and count the targets that are not masked, and how many different ones there are.",
        ),
        Outcome(
            name="too-small",
            answer=NOTE,
            meaning="hardly any gradient at first: very small weights, or a loss that hardly counts anything",
        ),
    ),
    find=find,
)
