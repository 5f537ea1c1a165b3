"""P6.5: is the learning rate in the range in which the program learns?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.text import shown

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench


def find(bench: Bench, limit: Limits) -> Finding:
    from steadyrun.preflight.short_training import STEPS, from_scratch, sweep

    seen = sweep(bench)
    rates, start, ends, falls = seen.rates, seen.start, seen.ends, seen.falls
    best, own, lower = seen.best, falls[1.0], max(falls[0.1], falls[0.01])
    times = ends[1.0] / max(min(ends[0.1], ends[0.01]), 1e-12)
    measured = {"first": start, "own": ends[1.0], "tenth": ends[0.1], "best": ends[best], "best_factor": best}
    rate = max(rates)
    lowest = "no tried rate ends lower" if best == 1 else f"lowest: {shown(ends[best])} at {shown(best * rate)}"
    facts = (
        f"In {STEPS} steps the loss goes from {shown(start)} to {shown(ends[1.0])} at learning rate {shown(rate)} and "
        f"to {shown(ends[0.1])} at {shown(0.1 * rate)} ({lowest})"
    )
    if lower > limit["learns"] and lower - own > limit["behind"] and times > limit["times"]:
        long = (bench.declared("warmup_steps") or 0) > limit["warmup"]
        return Finding("high-here" if long else "too-high", f"{facts}.", measured)
    if seen.learns_far_above_alone(limit):
        return Finding("too-low" if from_scratch(bench, start) else "low-here", f"{facts}.", measured)
    return Finding("pass", f"{facts}.", measured)


QUESTION = Question(
    code="P6.5",
    name="learning rate in range",
    asks="Does the program learn about as well at its learning rate as at lower and higher ones?",
    why="Above the stable range a program learns less than at a tenth of its learning rate; a thousand times below the "
    "best rate it learns almost nothing. Both look like a hard task.",
    needs=("optimizer", "loss_fn", "batches"),
    panel=None,
    thresholds=(
        Threshold(
            name="learns",
            value=0.05,
            unit="fraction of the first loss",
            meaning="a larger fall in 30 steps counts as learning",
            seed="",
            decision="larger than the noise of the loss",
        ),
        Threshold(
            name="behind",
            value=0.1,
            unit="fraction of the first loss",
            meaning="how much further the loss falls at a lower learning rate",
            seed="",
            decision="in no healthy program of the tests and the scoreboard a lower learning rate leads by that much",
        ),
        Threshold(
            name="times",
            value=1.1,
            unit="times",
            meaning="how many times the loss at a lower learning rate",
            seed="",
            decision="two losses near zero are not compared",
        ),
        Threshold(
            name="nothing",
            value=0.02,
            unit="fraction of the fall at the best rate",
            meaning="a rate that is too low learns less than this",
            seed="",
            decision="far below the best rate the fall is proportional to the learning rate",
        ),
        Threshold(
            name="factor",
            value=1000,
            unit="times",
            meaning="how far the best learning rate lies above the program's own",
            seed="",
            decision="deliberately low learning rates are a hundred times below the best",
        ),
        Threshold(
            name="warmup",
            value=100,
            unit="declared warmup steps",
            meaning="a longer warmup may make a high learning rate stable",
            seed="",
            decision="the short training here has a short warmup, so this is only a note",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the learning rate is in the range in which the program learns"),
        Outcome(
            name="too-high",
            answer=FAULT,
            meaning="the learning rate is too high",
            fix="Divide lr_max by 10, or add a warmup.",
            explains=("C1", "C3", "C4", "C5", "D", "S", "P6.1", "P6.3", "S6.3"),
        ),
        Outcome(
            name="high-here",
            answer=NOTE,
            meaning="the learning rate is high; the long warmup may allow it",
        ),
        Outcome(
            name="too-low",
            answer=FAULT,
            meaning="the learning rate is too low",
            fix="Multiply lr_max by 100, then search for the largest stable value.",
            explains=("C3", "C4", "S", "P6.1"),
        ),
        Outcome(
            name="low-here",
            answer=NOTE,
            meaning="the learning rate is low, which fine-tuning may intend",
        ),
    ),
    find=find,
    tried=True,
)
