"""P6.5: is the learning rate in the range where this program learns?"""

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
    facts = (
        f"the loss goes from {shown(start)} to {shown(ends[1.0])} in {STEPS} steps at the learning rate "
        f"{shown(max(rates))}, to {shown(ends[0.1])} at a tenth of it, and furthest ({shown(ends[best])}) at "
        f"{best:g} times it"
    )
    if lower > limit["learns"] and lower - own > limit["behind"] and times > limit["times"]:
        long = (bench.declared("warmup_steps") or 0) > limit["warmup"]
        return Finding("high-here" if long else "too-high", f"{facts}.", measured)
    if seen.learns_far_above_alone(limit):
        return Finding("too-low" if from_scratch(bench, start) else "low-here", f"{facts}.", measured)
    return Finding("pass", f"{facts}.", measured)


QUESTION = Question(
    code="P6.5",
    name="the learning rate",
    asks="Does the program learn at its own learning rate about as well as at a tenth, or ten times, of it?",
    why="A learning rate beyond the stable range learns less than a tenth of it would; one a thousand times too small "
    "learns nothing that can be seen. Both look like a hard task.",
    needs=("optimizer", "loss_fn", "batches"),
    panel=None,
    thresholds=(
        Threshold(
            name="learns",
            value=0.05,
            unit="of the first loss",
            meaning="gone in 30 steps where something is learned",
            seed="",
            decision="beyond noise",
        ),
        Threshold(
            name="behind",
            value=0.1,
            unit="of the first loss",
            meaning="how much less than a lower rate learns",
            seed="",
            decision="in none of the healthy programs of the tests and the scoreboard is a lower rate ahead by so much",
        ),
        Threshold(
            name="times",
            value=1.1,
            unit="times",
            meaning="the loss at a lower rate",
            seed="",
            decision="so that two small losses are not compared",
        ),
        Threshold(
            name="nothing",
            value=0.02,
            unit="of what the best rate learns",
            meaning="too low learns less than this",
            seed="",
            decision="the linear range",
        ),
        Threshold(
            name="factor",
            value=1000,
            unit="times",
            meaning="how far above the best rate must be",
            seed="",
            decision="careful choices are a hundred times below",
        ),
        Threshold(
            name="warmup",
            value=100,
            unit="declared steps of warmup",
            meaning="a long warmup may allow what is too high here",
            seed="",
            decision="a note",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the learning rate is in the range where the program learns"),
        Outcome(
            name="too-high",
            answer=FAULT,
            meaning="a lower learning rate learns far more: this one is beyond the stable range",
            fix="Divide lr_max by 10, or add a warmup.",
            explains=("C1", "C3", "C4", "C5", "D", "S", "P6.1", "P6.3", "S6.3"),
        ),
        Outcome(
            name="high-here",
            answer=NOTE,
            meaning="a lower learning rate learns far more in the first steps; the long warmup may help",
        ),
        Outcome(
            name="too-low",
            answer=FAULT,
            meaning="a learning rate a thousand times larger learns, this one does not",
            fix="Multiply lr_max by 100, then look for the largest that is stable.",
            explains=("C3", "C4", "S", "P6.1"),
        ),
        Outcome(
            name="low-here",
            answer=NOTE,
            meaning="a far larger learning rate learns more; careful fine-tuning may mean it so",
        ),
    ),
    find=find,
    tried=True,
)
