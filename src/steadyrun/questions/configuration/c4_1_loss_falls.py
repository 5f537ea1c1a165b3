"""C4.1: does the loss fall in the first 200 steps?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steadyrun.questions.configuration import c7_1_travel
from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.curves import Trend, trend
from steadyrun.signals.facts import RANDOM
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.progress import Progress, progress, surely
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent, shown

_PER = 100  # steps: the unit of a slope


@dataclass(frozen=True)
class Window:
    """The two marks as places in the record, and what the smoothed loss does between them."""

    early: int
    late: int
    words: str
    trend: Trend


def find(run: Signals, limit: Limits) -> Finding:
    training = progress(run, limit["losses"])
    window = _window(run, training, limit)
    at_early, at_late = float(training.smooth[window.early]), float(training.smooth[window.late])
    moves = _largest_update(run)
    measured = {
        "early": at_early,
        "late": at_late,
        "end": training.end,
        "fallen": training.fallen,
        "slope": _PER * window.trend.slope / (abs(training.start) or 1.0),
        "t": window.trend.t,
    }
    if moves is not None:
        measured["update_ratio"] = moves
    facts = _facts(training, window, at_early, at_late)
    step = training.loss.step_at(window.late)
    warming = _still_warming(run, training, limit)
    too_slow = moves is not None and moves < limit["update"] and training.fallen < limit["slow"]
    if training.fallen < limit["fallen"] or too_slow:
        return _stuck(run, limit, training, facts, measured, step, warming)
    if training.end > training.start:
        return Finding("late", f"{facts}: it fell, and ends above where it began.", measured, step)
    if at_late > at_early and window.trend.t > 0:
        return Finding("late", f"{facts}: it rose between the marks, and fell elsewhere.", measured, step)
    if abs(measured["slope"]) < limit["slope"] and at_late > limit["stays"] * at_early:
        return Finding("flat-start", f"{facts}: flat between the marks, and it fell elsewhere.", measured, step)
    return Finding("pass", f"{facts}.", measured, step)


def _facts(training: Progress, window: Window, early: float, late: float) -> str:
    return (
        f"smoothed loss {shown(early)} at {window.words} {training.loss.step_at(window.early)}, {shown(late)} at "
        f"{training.loss.step_at(window.late)}, {shown(training.end)} at the end; {_gone(training.fallen)}"
    )


def _gone(fallen: float) -> str:
    return (
        f"{percent(fallen)} of the first loss is gone"
        if fallen >= 0
        else f"never below the first loss, {percent(-fallen)} above at best"
    )


def _stuck(
    run: Signals, limit: Limits, training: Progress, facts: str, measured: dict[str, float], step: int, warming: str
) -> Finding:
    moves = measured.get("update_ratio")
    if warming:
        return Finding("warming-up", f"{facts}; {warming}.", measured, step)
    known = known_facts(run, limit)
    if not known.must_fall:
        return Finding("not-judged", f"{facts}; nothing recorded says that this loss has to fall.", measured, step)
    untrained, change = known.start == RANDOM, surely(training, limit.count("first"))
    above = training.end / abs(training.start) - 1 if training.start else 0.0
    exploded = known.classes is not None and _later(training) > (1 + limit["risen_far"]) * float(
        training.loss.values[0]
    )
    risen = exploded or (change > limit["sure"] and above > limit["risen"] and untrained)
    if risen and known.summed:
        return Finding("not-judged", f"{facts}; it is a sum of parts whose weights are not known.", measured, step)
    if risen:
        return Finding("diverging", f"{facts}: it is {percent(above)} above where it began.", measured, step)
    if limit.ask(c7_1_travel.QUESTION, run).outcome == "clip-too-tight":  # a larger rate would only hide it
        return Finding("not-judged", f"{facts}; the clip threshold is suspect (C7.1).", measured, step)
    if moves is not None and 0 < moves < (limit["update"] if untrained else limit["update_nothing"]):
        tiny = f"no block moves by more than {shown(moves)} of its size per step (limit {limit['update']:g})"
        return Finding("too-slow", f"{facts} (limit {limit['slow']:.0%}); {tiny}.", measured, step)
    if not untrained:
        return Finding("not-judged", f"{facts}; that the run starts untrained is not known.", measured, step)
    facts = f"{facts} (limit {limit['fallen']:.0%})"
    if moves == 0 and (gone := _rate_gone(run, limit)):
        fix = "The learning rate is gone: look at what multiplies it, and how often that is stepped (C2.1)."
        return Finding("too-slow", f"{facts}, and no parameter moves any more: {gone}.", measured, step, fix)
    if moves == 0:
        return Finding("static", f"{facts}, and no parameter moves.", measured, step)
    if change < -limit["sure"] or _validation_falls(run, limit):
        return Finding("slow", f"{facts}; it falls, little but surely.", measured, step)
    return _no_progress(run, limit, training, facts, measured, step)


def _rate_gone(run: Signals, limit: Limits) -> str:
    """In words, where the learning rate has decayed to nothing by half time."""
    rates = run.maybe("lr/0")
    if rates is None or len(rates) < limit["rates"]:
        return ""
    peak, middle = float(np.max(rates.values)), float(rates.values[len(rates) // 2])
    if not 0 < middle < limit["gone"] * peak:
        return ""
    return f"the learning rate is {shown(peak)} at most and {shown(middle)} at half time"


def _later(training: Progress) -> float:
    """The middle of the second half: few wild losses do not move it."""
    return float(np.median(training.loss.values[len(training.loss) // 2 :]))


def _no_progress(
    run: Signals, limit: Limits, training: Progress, facts: str, measured: dict[str, float], step: int
) -> Finding:
    """Weights move, or may move, and the loss does not: a plateau at first, a failure in the end."""
    after = len(training.loss.from_step(run.declared("warmup_steps") or 0.0))
    moving = "it is not known whether weights move"
    if (moves := measured.get("update_ratio")) is not None:
        moving = f"blocks move by up to {shown(moves)} of their size per step"
    if after < limit["patience"] or run.running:
        return Finding("flat", f"{facts} after {after} steps; {moving}.", measured, step)
    if tiny := c7_1_travel.held_by_rate(run, limit, limit["travel"]):
        return Finding("too-slow", f"{facts} after {after} steps; {tiny}.", measured, step)
    message = f"{facts} after {after} steps (patience {limit['patience']:g}); {moving}."
    return Finding("not-learning", message, measured, step)


def _validation_falls(run: Signals, limit: Limits) -> bool:
    val = run.maybe("val_loss")
    if val is None or len(val) < limit["validations"]:
        return False
    return float(np.max(val.values[-2:])) < limit["validation"] * float(val.values[0])


def _window(run: Signals, training: Progress, limit: Limits) -> Window:
    """The marks: in steps, in logged points where the record is sparse, scaled down where it is short."""
    loss = training.loss
    early, late = limit["early"], max(limit["late"], limit["early"] + 1)
    planned = run.declared("total_steps") or 0
    if run.running and len(loss) <= late and (planned == 0 or planned > late):
        raise MissingSignal("loss", f"asked at step {late:g}; {len(loss)} are recorded so far", "let it run on")
    scale = min(1.0, (len(loss) - 1) / late)
    marks = int(early * scale), int(late * scale)
    part = slice(marks[0], marks[1] + 1)
    words = "step" if loss.spacing <= 1 else "logged point (marks are counted in points) at step"
    return Window(*marks, words, trend(loss.steps[part], loss.values[part]))


def _largest_update(run: Signals) -> float | None:
    """The largest relative move of any block per step, typical of the later half; None where not recorded."""
    start = run.declared("warmup_steps") or 0.0
    ratios = []
    for name in run.matching("update_ratio/*"):
        points = run.maybe(name)
        if points is not None:
            later = points.from_step(max(start, float(points.steps[-1]) / 2))
            ratios += [float(np.median(later.values))] if len(later) else []
    return max(ratios, default=None)


def _still_warming(run: Signals, training: Progress, limit: Limits) -> str:
    """In words, where the learning rate has only just begun to be what it will be."""
    warmup, last = run.declared("warmup_steps") or 0.0, float(training.loss.steps[-1])
    if last < limit["warmup"] * warmup:
        return f"the warmup of {warmup:g} steps is hardly over"
    rates = run.maybe("lr/0")
    if rates is None or len(rates) < limit["rates"]:
        return ""
    middle = float(rates.values[len(rates) // 2])
    rising = rates.values[-1] >= np.max(rates.values) and rates.values[-1] > limit["rising"] * middle
    return f"the learning rate still rises ({shown(middle)} halfway, {shown(rates.values[-1])} now)" if rising else ""


QUESTION = Question(
    code="C4.1",
    name="the loss falls",
    asks="Does the training loss (50-step EMA) fall over the first 200 steps?",
    why="A loss that does not fall in the first 200 steps will rarely do so later: the updates are zero, far too small "
    "or far too large.",
    needs=("loss",),
    panel=1,
    thresholds=(
        Threshold(
            name="early",
            value=50,
            unit="steps",
            meaning="first mark",
            seed="step 50",
            decision="as specified; logged points where sparse, scaled where short",
        ),
        Threshold(
            name="late",
            value=200,
            unit="steps",
            meaning="second mark",
            seed="step 200",
            decision="as specified; logged points where sparse, scaled where short",
        ),
        Threshold(
            name="slope",
            value=0.00016,
            unit="share of the first loss per 100 steps",
            meaning="fall between the marks that is next to none",
            seed="0.001 per 100 steps",
            decision="0.001 of a first loss of 6.24; a note, since honest runs with a hundredth of the "
            "right learning rate still fall faster",
            of="slope",
        ),
        Threshold(
            name="fallen",
            value=0.02,
            unit="share of the first loss",
            meaning="what must be gone at some time",
            seed="loss(200) < loss(50)",
            decision="noise moves the smoothed loss by less; healthy runs lose ten times as much",
            of="-fallen",
        ),
        Threshold(
            name="slow",
            value=0.1,
            unit="share of the first loss",
            meaning="what must be gone where the updates are tiny",
            seed="",
            decision="as in C3.1; it only counts together with tiny updates",
            of="-fallen",
        ),
        Threshold(
            name="travel",
            value=0.1,
            unit="of the median block's size, all steps together",
            meaning="if weights moved by less and Adam's rate alone decides that, the rate is what holds them",
            seed="",
            decision="a fifth of the limit of C7.1; only of a loss that has not moved at all",
        ),
        Threshold(
            name="update",
            value=2e-5,
            unit="of a block's size per step",
            meaning="updates below this are tiny",
            seed="",
            decision="healthy runs move their liveliest block a hundred times as far",
            of="-update_ratio",
        ),
        Threshold(
            name="patience",
            value=500,
            unit="steps after warmup",
            meaning="how long a loss may stay where it is while weights move",
            seed="",
            decision="some tasks begin with a plateau; where no weight moves, nothing needs to be waited for",
        ),
        Threshold(
            name="update_nothing",
            value=1e-7,
            unit="of a block's size per step",
            meaning="the same, where the run may start from learned weights",
            seed="",
            decision="the spacing of fp32: such updates hardly arrive",
        ),
        Threshold(
            name="gone",
            value=1e-3,
            unit="of the largest learning rate",
            meaning="a rate below this at half time is gone",
            seed="",
            decision="an intended schedule reaches this only at its end",
        ),
        Threshold(
            name="risen",
            value=0.05,
            unit="share of the first loss",
            meaning="a loss above its start by this, surely, diverges",
            seed="",
            decision="noise moves the smoothed loss by less",
        ),
        Threshold(
            name="risen_far",
            value=1.0,
            unit="share of the first loss",
            meaning="how far the middle of the later losses of a cross-entropy must be above its first one",
            seed="",
            decision="other objectives (a reward, a curriculum) may grow",
        ),
        Threshold(
            name="stays",
            value=0.9,
            unit="of the loss at the first mark",
            meaning="between the marks the loss is flat only if this much is left",
            seed="",
            decision="a noisy slope of almost nothing can still be a fall",
        ),
        Threshold(
            name="sure",
            value=4.5,
            unit="standard errors",
            meaning="a larger change of the loss is not chance",
            seed="",
            decision="as for the trend of D4.1",
        ),
        Threshold(
            name="first",
            value=20,
            unit="losses",
            meaning="how many of the first ones, or a tenth of all, are compared with the later half",
            seed="",
            decision="enough for their own deviation; of a short record its first half",
        ),
        Threshold(
            name="validations",
            value=3,
            unit="validations",
            meaning="fewer do not show that validation falls",
            seed="",
            decision="one of two may be low by chance",
        ),
        Threshold(
            name="validation",
            value=0.995,
            unit="of the first validation loss",
            meaning="the last two validations must be below this",
            seed="",
            decision="then the loss falls slowly but surely",
        ),
        Threshold(
            name="warmup",
            value=1.5,
            unit="times the warmup",
            meaning="before this the warmup is hardly over",
            seed="",
            decision="the loss needs some steps at the full rate",
        ),
        Threshold(
            name="rates",
            value=4,
            unit="learning rates",
            meaning="fewer show no course",
            seed="",
            decision="half of the record must have two",
        ),
        Threshold(
            name="rising",
            value=1.2,
            unit="times the rate at half of the record",
            meaning="a last rate above this still rises",
            seed="",
            decision="less may be a constant rate with a short warmup",
        ),
        LOSSES,
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the loss falls"),
        Outcome(name="late", answer=NOTE, meaning="the loss rose between the marks and fell elsewhere"),
        Outcome(name="flat-start", answer=NOTE, meaning="the loss was flat between the marks and fell elsewhere"),
        Outcome(name="warming-up", answer=NOTE, meaning="the loss has not moved, but the warmup is hardly over"),
        Outcome(name="not-judged", answer=NOTE, meaning="the loss has not fallen; it need not, or the clip is suspect"),
        Outcome(
            name="diverging",
            answer=FAULT,
            meaning="the loss is above where it began",
            fix="Check the learning rate (C2) and the optimizer's state (C6); then divide lr_max by 3 and walk again.",
            may_pass=True,
        ),
        Outcome(name="slow", answer=NOTE, meaning="the loss falls little, but surely"),
        Outcome(name="flat", answer=NOTE, meaning="the loss has not moved yet although the weights do"),
        Outcome(
            name="not-learning",
            answer=FAULT,
            meaning="the loss has not moved in all this time",
            fix="Try to overfit one small batch: if that fails, look at the loss and the labels (do they belong "
            "to their inputs?); if it works, divide and multiply lr_max by 10.",
            may_pass=True,
        ),
        Outcome(
            name="static",
            answer=FAULT,
            meaning="the loss has not moved, and neither has any parameter",
            fix="See whether any parameter changes in a step: the optimizer must be built on this model's "
            "parameters, and gradients must be there when it steps.",
            may_pass=True,
        ),
        Outcome(
            name="too-slow",
            answer=FAULT,
            meaning="the updates are too small to learn anything",
            fix="Multiply lr_max by 3 (ten, if the updates are that small) and walk again.",
            may_pass=True,
        ),
    ),
    find=find,
)
