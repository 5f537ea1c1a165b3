"""C4.1: the loss falls in the first 200 steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steadyrun.questions.configuration import c7_1_travel
from steadyrun.questions.configuration.sizes import change_in_words
from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.curves import Trend, trend
from steadyrun.signals.facts import RANDOM
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.progress import Progress, progress, surely
from steadyrun.signals.run_signals import Signals
from steadyrun.text import apart, counted, percent, shown

_PER = 100  # steps: the unit of a slope
_NEAR = 0.2  # of the smallest useful update: the smaller factor of the learning rate comes close to it
_ADVISED = (10, 3)  # factors of the learning rate that the fix recommends: far below that update, and near it
_TERMS = "Look at each term of the loss on its own."
_CLIP = "Raise the clip threshold first: see C7.1."
_INIT = "Declare config={'init': 'random'} or config={'init': 'pretrained'}."


@dataclass(frozen=True)
class Window:
    """The indices of the two marks in the record, and the trend of the loss between them."""

    early: int
    late: int
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
    facts = _facts(training, window, limit["fallen"])
    step = training.loss.step_at(window.late)
    warming = _still_warming(run, training, limit)
    too_slow = moves is not None and moves < limit["update"] and training.fallen < limit["slow"]
    if training.fallen < limit["fallen"] or too_slow:
        return _stuck(run, limit, training, facts, measured, step, warming)
    if training.end > training.start:
        fix = "Keep the checkpoint with the lowest loss, and check the learning rate after it."
        return Finding("late", f"{facts}. It ends above its start.", measured, step, fix)
    between = f"from step {training.loss.step_at(window.early)} to {step}"
    if at_late > at_early and window.trend.t > 0:
        return Finding("late", f"{facts}. It rose {between}.", measured, step)
    if abs(measured["slope"]) < limit["slope"] and at_late > limit["stays"] * at_early:
        return Finding("flat-start", f"{facts}. It was flat {between}.", measured, step)
    return Finding("pass", f"{facts}.", measured, step)


def _facts(training: Progress, window: Window, least: float) -> str:
    early, late = float(training.smooth[window.early]), float(training.smooth[window.late])
    first, at_early, at_late, last = apart(training.start, early, late, training.end)
    steps = training.loss.step_at(window.early), training.loss.step_at(window.late)
    return (
        f"{_gone(training.fallen, least)}: {first} at the start, smoothed {at_early} at step {steps[0]}, {at_late} at "
        f"step {steps[1]}, {last} at the end"
    )


def _gone(fallen: float, least: float) -> str:
    if fallen < 0:
        return f"The loss was never below its start, {percent(-fallen)} above it at best"
    words = change_in_words(fallen, least)
    return f"{words[0].upper()}{words[1:]}"


def _stuck(
    run: Signals, limit: Limits, training: Progress, facts: str, measured: dict[str, float], step: int, warming: str
) -> Finding:
    moves = measured.get("update_ratio")
    if warming:
        return Finding("warming-up", f"{facts}. {warming}.", measured, step)
    known = known_facts(run, limit)
    if not known.must_fall:
        return Finding("not-judged", f"{facts}. The record does not show that this loss must fall.", measured, step)
    untrained, change = known.start == RANDOM, surely(training, limit.count("first"))
    above = training.end / abs(training.start) - 1 if training.start else 0.0
    exploded = known.classes is not None and _later(training) > (1 + limit["risen_far"]) * float(
        training.loss.values[0]
    )
    risen = exploded or (change > limit["sure"] and above > limit["risen"] and untrained)
    if risen and known.summed:
        return Finding("not-judged", f"{facts}. It is a sum of terms of unknown weight.", measured, step, _TERMS)
    if risen:
        return Finding("diverging", f"{facts}. It ends {percent(above)} above its start.", measured, step)
    if limit.ask(c7_1_travel.QUESTION, run).outcome == "clip-too-tight":  # a larger rate would only hide it
        return Finding("not-judged", f"{facts}. The clip threshold is probably too low.", measured, step, _CLIP)
    smallest = limit["update"] if untrained else limit["update_nothing"]
    if moves is not None and 0 < moves < smallest:
        tiny = f"No block's weights move by more than {shown(moves)} of their norm per step"
        message = f"{facts} ({_expected(limit['slow'])}). {tiny} (expected at least {smallest:g})."
        return Finding("too-slow", message, measured, step, _raise_rate(moves / smallest))
    if not untrained:
        return Finding("not-judged", f"{facts}. Whether the run starts untrained is not known.", measured, step, _INIT)
    facts = f"{facts} ({_expected(limit['fallen'])})"
    if moves == 0 and (gone := _rate_gone(run, limit)):
        fix = "Check what multiplies the learning rate and how often the scheduler is stepped (C2.1)."
        return Finding("too-slow", f"{facts}. No parameter moves any more: {gone}.", measured, step, fix)
    if moves == 0:
        return Finding("static", f"{facts}. No parameter moves.", measured, step)
    if change < -limit["sure"]:
        return Finding("slow", f"{facts}. The fall is larger than the noise.", measured, step)
    if _validation_falls(run, limit):
        return Finding("slow", f"{facts}. The validation loss falls.", measured, step)
    return _no_progress(run, limit, training, facts, measured, step)


def _rate_gone(run: Signals, limit: Limits) -> str:
    """In words: the learning rate has decayed to nothing at half of the run; empty otherwise."""
    rates = run.maybe("lr/0")
    if rates is None or len(rates) < limit["rates"]:
        return ""
    peak, middle = float(np.max(rates.values)), float(rates.values[len(rates) // 2])
    if not 0 < middle < limit["gone"] * peak:
        return ""
    return f"the learning rate peaks at {shown(peak)} and is {shown(middle)} at half of the run"


def _later(training: Progress) -> float:
    """The median of the second half: a few outliers do not move it."""
    return float(np.median(training.loss.values[len(training.loss) // 2 :]))


def _no_progress(
    run: Signals, limit: Limits, training: Progress, facts: str, measured: dict[str, float], step: int
) -> Finding:
    """Weights move, or may move, and the loss does not: a plateau at first, a fault at the end."""
    after = len(training.loss.from_step(run.declared("warmup_steps") or 0.0))
    moving = "Whether weights move is not recorded"
    if (moves := measured.get("update_ratio")) is not None:
        moving = f"Weights move by up to {percent(moves)} of their norm per step"
    facts = f"{facts}, after {counted(after, 'step')}"
    if after < limit["patience"] or run.running:
        judged = "at the end of the run" if after >= limit["patience"] else f"after {limit['patience']:g} steps"
        return Finding("flat", f"{facts}. {moving}. It is judged {judged}.", measured, step)
    if tiny := c7_1_travel.held_by_rate(run, limit, limit["travel"]):
        way = limit.ask(c7_1_travel.QUESTION, run).measured["travel"]
        return Finding("too-slow", f"{facts}. {tiny}.", measured, step, _raise_rate(way / limit["travel"]))
    return Finding("not-learning", f"{facts} (judged after {limit['patience']:g}). {moving}.", measured, step)


def _expected(fall: float) -> str:
    return f"expected a fall of at least {fall:.0%}"


def _raise_rate(reached: float) -> str:
    """The fix for updates that reach this fraction of the smallest that lets a model learn."""
    return f"Multiply lr_max by {_ADVISED[reached > _NEAR]} and run `steadyrun check` again."


def _validation_falls(run: Signals, limit: Limits) -> bool:
    val = run.maybe("val_loss")
    if val is None or len(val) < limit["validations"]:
        return False
    return float(np.max(val.values[-2:])) < limit["validation"] * float(val.values[0])


def _window(run: Signals, training: Progress, limit: Limits) -> Window:
    """The marks in steps; in logged points if the record is sparse, scaled down if it is short."""
    loss = training.loss
    early, late = limit["early"], max(limit["late"], limit["early"] + 1)
    planned = run.declared("total_steps") or 0
    if run.running and len(loss) <= late and (planned == 0 or planned > late):
        raise MissingSignal(
            "loss", f"the question needs {late:g} losses; {len(loss)} are recorded so far", "let it run on"
        )
    scale = min(1.0, (len(loss) - 1) / late)
    marks = int(early * scale), int(late * scale)
    part = slice(marks[0], marks[1] + 1)
    return Window(*marks, trend(loss.steps[part], loss.values[part]))


def _largest_update(run: Signals) -> float | None:
    """The largest relative update of any block per step, as the median of the second half; None if not recorded."""
    start = run.declared("warmup_steps") or 0.0
    ratios = []
    for name in run.matching("update_ratio/*"):
        points = run.maybe(name)
        if points is not None:
            later = points.from_step(max(start, float(points.steps[-1]) / 2))
            ratios += [float(np.median(later.values))] if len(later) else []
    return max(ratios, default=None)


def _still_warming(run: Signals, training: Progress, limit: Limits) -> str:
    """In words: the warmup has hardly ended, or the learning rate still rises; empty otherwise."""
    warmup, last = run.declared("warmup_steps") or 0.0, float(training.loss.steps[-1])
    if last < limit["warmup"] * warmup:
        ends = f"The warmup takes {warmup:g} steps, and the last step is {last:g}"
        return f"{ends}: the loss is judged from step {limit['warmup'] * warmup:g} on"
    rates = run.maybe("lr/0")
    if rates is None or len(rates) < limit["rates"]:
        return ""
    middle = float(rates.values[len(rates) // 2])
    rising = rates.values[-1] >= np.max(rates.values) and rates.values[-1] > limit["rising"] * middle
    return f"The learning rate still rises ({shown(middle)} halfway, {shown(rates.values[-1])} now)" if rising else ""


QUESTION = Question(
    code="C4.1",
    name="the loss falls",
    asks="Does the training loss (50-step EMA) fall over the first 200 steps?",
    why="A loss that does not fall in the first 200 steps rarely falls later: the updates are zero, far too small or "
    "far too large.",
    needs=("loss",),
    panel=1,
    thresholds=(
        Threshold(
            name="early",
            value=50,
            unit="steps",
            meaning="first mark",
            seed="step 50",
            decision="the rule of thumb; counted in logged points if the log is sparse, scaled down for a short run",
        ),
        Threshold(
            name="late",
            value=200,
            unit="steps",
            meaning="second mark",
            seed="step 200",
            decision="the rule of thumb; counted in logged points if the log is sparse, scaled down for a short run",
        ),
        Threshold(
            name="slope",
            value=0.00016,
            unit="fraction of the first loss per 100 steps",
            meaning="a smaller fall between the marks is flat",
            seed="0.001 per 100 steps",
            decision="0.001 of a first loss of 6.24; a note, since runs with a hundredth of the right learning rate "
            "still fall faster",
            of="slope",
        ),
        Threshold(
            name="fallen",
            value=0.02,
            unit="fraction of the first loss",
            meaning="by how much the loss must fall at some time",
            seed="loss(200) < loss(50)",
            decision="noise moves the smoothed loss by less; the loss of healthy runs falls ten times as far",
            of="-fallen",
        ),
        Threshold(
            name="slow",
            value=0.1,
            unit="fraction of the first loss",
            meaning="by how much the loss must fall if the updates are tiny",
            seed="",
            decision="the same as in C3.1; it only counts together with tiny updates",
            of="-fallen",
        ),
        Threshold(
            name="travel",
            value=0.1,
            unit="of the norm of the median block's weights, all steps together",
            meaning="if weights moved by less and only Adam's learning rate explains it, the learning rate is too low",
            seed="",
            decision="a fifth of the limit of C7.1; only for a loss that has not moved at all",
        ),
        Threshold(
            name="update",
            value=2e-5,
            unit="of a block's size per step",
            meaning="smaller updates are tiny",
            seed="",
            decision="in healthy runs the block with the largest updates moves a hundred times as far",
            of="-update_ratio",
        ),
        Threshold(
            name="patience",
            value=500,
            unit="steps after warmup",
            meaning="how long a loss may stay flat while weights move",
            seed="",
            decision="some tasks begin with a plateau; if no weight moves, waiting does not help",
        ),
        Threshold(
            name="update_nothing",
            value=1e-7,
            unit="of a block's size per step",
            meaning="the same, if the run may start from pretrained weights",
            seed="",
            decision="the spacing of fp32: most of such an update is rounded away",
        ),
        Threshold(
            name="gone",
            value=1e-3,
            unit="of the largest learning rate",
            meaning="a rate below this at half of the run has decayed to nothing",
            seed="",
            decision="an intended schedule reaches this only at its end",
        ),
        Threshold(
            name="risen",
            value=0.05,
            unit="fraction of the first loss",
            meaning="a loss that ends this far above its start, beyond chance, diverges",
            seed="",
            decision="noise moves the smoothed loss by less",
        ),
        Threshold(
            name="risen_far",
            value=1.0,
            unit="fraction of the first loss",
            meaning="how far the median of the second half of a cross-entropy must be above its first loss",
            seed="",
            decision="other objectives (a reward, a curriculum) may grow",
        ),
        Threshold(
            name="stays",
            value=0.9,
            unit="of the loss at the first mark",
            meaning="between the marks the loss is flat only if it stays above this",
            seed="",
            decision="a noisy slope near zero can still be a fall",
        ),
        Threshold(
            name="sure",
            value=4.5,
            unit="standard errors",
            meaning="a larger change of the loss is not chance",
            seed="",
            decision="the same as for the trend of D4.1",
        ),
        Threshold(
            name="first",
            value=20,
            unit="losses",
            meaning="how many first losses, or a tenth of all, are compared with the second half",
            seed="",
            decision="enough to estimate their standard deviation; a short record is split in half",
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
            decision="then the loss falls slowly, but beyond chance",
        ),
        Threshold(
            name="warmup",
            value=1.5,
            unit="times the warmup",
            meaning="until then the warmup has hardly ended",
            seed="",
            decision="the loss needs some steps at the full learning rate",
        ),
        Threshold(
            name="rates",
            value=4,
            unit="learning rates",
            meaning="fewer do not show how the rate changes",
            seed="",
            decision="half of the record must have two",
        ),
        Threshold(
            name="rising",
            value=1.2,
            unit="times the rate at half of the record",
            meaning="with a higher last rate, the learning rate still rises",
            seed="",
            decision="less may be a constant rate with a short warmup",
        ),
        LOSSES,
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the loss falls"),
        Outcome(
            name="late",
            answer=NOTE,
            meaning="the loss rose for a part of the run",
            fix="No action is needed while the loss falls now. If it rises again, look at the learning rate there.",
        ),
        Outcome(
            name="flat-start",
            answer=NOTE,
            meaning="the loss was flat early in the run, but fell in the end",
            fix="No action is needed while the loss falls.",
        ),
        Outcome(
            name="warming-up",
            answer=NOTE,
            meaning="the loss has not fallen yet, during or just after the warmup",
            fix="Train on and run `steadyrun check` again.",
        ),
        Outcome(
            name="not-judged",
            answer=NOTE,
            meaning="the loss has not fallen, which need not be a fault",
            fix="Judge this run by a metric: log an accuracy, a return or a score.",
        ),
        Outcome(
            name="diverging",
            answer=FAULT,
            meaning="the loss ends above its start",
            fix="Divide lr_max by 3 and run `steadyrun check` again. Also check the schedule (C2) and the optimizer's "
            "state (C6).",
            may_pass=True,
        ),
        Outcome(
            name="slow",
            answer=NOTE,
            meaning="the loss falls slowly, or only in validation",
            fix="Train on and check again, or try three times the learning rate.",
        ),
        Outcome(
            name="flat",
            answer=NOTE,
            meaning="the loss is flat so far",
            fix="Train on and run `steadyrun check` again.",
        ),
        Outcome(
            name="not-learning",
            answer=FAULT,
            meaning="the loss does not fall",
            fix="Overfit one small batch. If that fails, check the loss function and whether labels belong to their "
            "inputs; if it works, try lr_max / 10 and lr_max * 10.",
            may_pass=True,
        ),
        Outcome(
            name="static",
            answer=FAULT,
            meaning="no parameter moves, so the loss does not fall",
            fix="Build the optimizer on model.parameters() of this model. Before optimizer.step(), check that lr is "
            "above 0, requires_grad is True and p.grad is not None.",
            may_pass=True,
        ),
        Outcome(
            name="too-slow",
            answer=FAULT,
            meaning="the updates are too small for the model to learn",
            fix="Multiply lr_max by 3 and run `steadyrun check` again.",
            may_pass=True,
        ),
    ),
    find=find,
)
