"""C4.1: does the loss fall in the first 200 steps?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold, shown
from steadyrun.questions.learning import Progress, falls_surely, from_scratch, progress, should_fall
from steadyrun.signals.run import MissingSignal, Signals
from steadyrun.signals.trends import Trend, trend


@dataclass(frozen=True)
class Window:
    """The two marks as places in the record, and what the smoothed loss does between them."""

    early: int
    late: int
    words: str
    trend: Trend


def find(run: Signals, limit: Limits) -> Finding:
    seen = progress(run)
    window = _window(run, seen, limit)
    at_early, at_late = float(seen.smooth[window.early]), float(seen.smooth[window.late])
    moves = _largest_update(run)
    measured = {
        "early": at_early,
        "late": at_late,
        "end": seen.end,
        "fallen": seen.fallen,
        "slope": 100 * window.trend.slope / (abs(seen.start) or 1.0),
        "t": window.trend.t,
    }
    if moves is not None:
        measured["update_ratio"] = moves
    facts = _facts(seen, window, at_early, at_late)
    step = seen.loss.step_at(window.late)
    warming = _still_warming(run, seen)
    too_slow = moves is not None and moves < limit["update"] and seen.fallen < limit["slow"]
    if seen.fallen < limit["fallen"] or too_slow:
        return _stuck(run, limit, seen, facts, measured, step, warming)
    if at_late > at_early and window.trend.t > 0:
        return Finding("late", f"{facts}: it rose between the marks, and fell elsewhere.", measured, step)
    if abs(measured["slope"]) < limit["slope"]:
        return Finding("flat-start", f"{facts}: flat between the marks, and it fell elsewhere.", measured, step)
    return Finding("pass", f"{facts}.", measured, step)


def _facts(seen: Progress, window: Window, early: float, late: float) -> str:
    return (
        f"smoothed loss {shown(early)} at {window.words} {seen.loss.step_at(window.early)}, {shown(late)} at "
        f"{seen.loss.step_at(window.late)}, {shown(seen.end)} at the end; {seen.fallen:.1%} of the first loss is gone"
    )


def _stuck(
    run: Signals, limit: Limits, seen: Progress, facts: str, measured: dict[str, float], step: int, warming: str
) -> Finding:
    moves = measured.get("update_ratio")
    because = should_fall(run)
    if warming:
        return Finding("warming-up", f"{facts}; {warming}.", measured, step)
    if not because:
        return Finding("not-judged", f"{facts}; nothing recorded says that this loss has to fall.", measured, step)
    if not from_scratch(run):
        return Finding("not-judged", f"{facts}; that the run starts untrained is not known.", measured, step)
    if seen.end > (1 + limit["risen"]) * abs(seen.start):
        return Finding(
            "diverging", f"{facts} (limit {limit['fallen']:.0%}): it is above where it began.", measured, step
        )
    if moves is not None and 0 < moves < limit["update"]:
        tiny = f"no block moves by more than {shown(moves)} of its size per step (limit {limit['update']:g})"
        return Finding("too-slow", f"{facts} (limit {limit['slow']:.0%}); {tiny}.", measured, step)
    facts = f"{facts} (limit {limit['fallen']:.0%})"
    if falls_surely(seen) and moves != 0:
        return Finding("slow", f"{facts}; it falls, little but surely.", measured, step)
    if moves == 0:
        return Finding("static", f"{facts}, and no parameter moves.", measured, step)
    after = len(seen.loss.from_step(run.declared("warmup_steps") or 0.0))
    moving = (
        f"blocks move by up to {shown(moves)} of their size per step"
        if moves is not None
        else "it is not known whether weights move"
    )
    if after < limit["patience"] or run.running:
        return Finding("flat", f"{facts} after {after} steps; {moving}.", measured, step)
    return Finding(
        "not-learning", f"{facts} after {after} steps (patience {limit['patience']:g}); {moving}.", measured, step
    )


def _window(run: Signals, seen: Progress, limit: Limits) -> Window:
    """The marks: in steps, in logged points where the record is sparse, scaled down where it is short."""
    loss = seen.loss
    early, late = limit["early"], limit["late"]
    planned = run.declared("total_steps") or 0
    if run.running and len(loss) <= late and (planned == 0 or planned > late):
        raise MissingSignal("loss", f"asked at step {late:g}; {len(loss)} are recorded so far", "let it run on")
    scale = min(1.0, (len(loss) - 1) / late)
    places = int(early * scale), int(late * scale)
    part = slice(places[0], places[1] + 1)
    words = "step" if loss.spacing <= 1 else "logged point (marks are counted in points) at step"
    return Window(*places, words, trend(loss.steps[part], loss.values[part]))


def _largest_update(run: Signals) -> float | None:
    """The largest relative move of any block per step, typical of the time after warmup; None where not recorded."""
    start = run.declared("warmup_steps") or 0.0
    found = []
    for name in run.matching("update_ratio/*"):
        points = run.maybe(name)
        after = points.from_step(start) if points is not None else None
        if after is not None and len(after):
            found.append(float(np.median(after.values)))
    return max(found, default=None)


def _still_warming(run: Signals, seen: Progress) -> str:
    warmup, last = run.declared("warmup_steps") or 0.0, float(seen.loss.steps[-1])
    return f"the warmup of {warmup:g} steps is hardly over" if last < 1.5 * warmup else ""


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
            "early",
            50,
            "steps",
            "first mark",
            "step 50",
            "as specified; logged points where sparse, scaled where short",
        ),
        Threshold(
            "late",
            200,
            "steps",
            "second mark",
            "step 200",
            "as specified; logged points where sparse, scaled where short",
        ),
        Threshold(
            "slope",
            0.00016,
            "share of the first loss per 100 steps",
            "fall between the marks that is next to none",
            "0.001 per 100 steps",
            "0.001 of a first loss of 6.24; a note, since honest runs with a hundredth of the "
            "right learning rate still fall faster",
            "slope",
        ),
        Threshold(
            "fallen",
            0.02,
            "share of the first loss",
            "what must be gone at some time",
            "loss(200) < loss(50)",
            "noise moves the smoothed loss by less; healthy runs lose ten times as much",
            "-fallen",
        ),
        Threshold(
            "slow",
            0.1,
            "share of the first loss",
            "what must be gone where the updates are tiny",
            "",
            "together with the update limit",
            "-fallen",
        ),
        Threshold(
            "update",
            2e-5,
            "of a block's size per step",
            "updates below this are tiny",
            "",
            "healthy runs move their liveliest block a hundred times as far",
            "-update_ratio",
        ),
        Threshold(
            "patience",
            500,
            "steps after warmup",
            "how long a loss may stay where it is while weights move",
            "",
            "some tasks begin with a plateau; where no weight moves, nothing needs to be waited for",
        ),
        Threshold(
            "risen", 0.05, "share of the first loss", "a loss above its start by this diverges", "", "beyond noise"
        ),
    ),
    outcomes=(
        Outcome("pass", PASS, "the loss falls"),
        Outcome("late", NOTE, "the loss rose between the marks and fell elsewhere"),
        Outcome("flat-start", NOTE, "the loss was flat between the marks and fell elsewhere"),
        Outcome("warming-up", NOTE, "the loss has not moved, but the warmup is hardly over"),
        Outcome("not-judged", NOTE, "the loss has not fallen, but nothing says that it has to"),
        Outcome(
            "diverging",
            FAULT,
            "the loss is above where it began",
            "Check the learning rate (C2) and the optimizer's state (C6); then divide lr_max by 3 and walk again.",
            edge=("C6.2",),
        ),
        Outcome("slow", NOTE, "the loss falls little, but surely"),
        Outcome("flat", NOTE, "the loss has not moved yet although the weights do"),
        Outcome(
            "not-learning",
            FAULT,
            "the loss has not moved in all this time",
            "Try to overfit one small batch: if that fails, look at the loss and the labels (do they belong to their "
            "inputs?); if it works, divide and multiply lr_max by 10.",
            edge=("C6.2",),
        ),
        Outcome(
            "static",
            FAULT,
            "the loss has not moved, and neither has any parameter",
            "See whether any parameter changes in a step: the optimizer must be built on this model's parameters, and "
            "gradients must be there when it steps.",
            edge=("C6.2",),
        ),
        Outcome(
            "too-slow",
            FAULT,
            "the updates are too small to learn anything",
            "Multiply lr_max by 3 (ten, if the updates are that small) and walk again.",
            edge=("C6.2",),
        ),
    ),
    find=find,
)
