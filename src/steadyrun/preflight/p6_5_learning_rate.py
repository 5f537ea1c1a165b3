"""P6.5: is the learning rate in the range where this program learns?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import NotApplicable
from steadyrun.text import shown

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench

FACTORS = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
_STEPS, _WARMUP, _LAST = 30, 15, 6
_GUESS = 0.3  # of ln C: a first loss this close to it is that of an untrained model


def find(bench: Bench, limit: Limits) -> Finding:
    if len(bench.task.optimizers) != 1:
        raise NotApplicable("there is not exactly one optimizer: which learning rate would be changed is not clear")
    rates = _peaks(bench)
    if not all(rate > 0 for rate in rates):
        raise NotApplicable("no learning rate above zero is known")
    start = _loss_now(bench)
    if not math.isfinite(start) or start <= 0:
        raise NotApplicable(f"the first loss is {shown(start)}: how far it falls says nothing")
    ends = {factor: _trained(bench, rates, factor) for factor in FACTORS}
    falls = {factor: (start - end) / start if math.isfinite(end) else -math.inf for factor, end in ends.items()}
    best = max(falls, key=lambda factor: falls[factor])
    own, lower = falls[1.0], max(falls[0.1], falls[0.01])
    times = ends[1.0] / max(min(ends[0.1], ends[0.01]), 1e-12)
    measured = {"first": start, "own": ends[1.0], "tenth": ends[0.1], "best": ends[best], "best_factor": best}
    facts = (
        f"the loss goes from {shown(start)} to {shown(ends[1.0])} in {_STEPS} steps at the learning rate "
        f"{shown(max(rates))}, to {shown(ends[0.1])} at a tenth of it, and furthest ({shown(ends[best])}) at "
        f"{best:g} times it"
    )
    if lower > limit["learns"] and lower - own > limit["behind"] and times > limit["times"]:
        long = (bench.declared("warmup_steps") or 0) > limit["warmup"]
        return Finding("high-here" if long else "too-high", f"{facts}.", measured)
    nothing = falls[best] > limit["learns"] and own < limit["nothing"] * falls[best]
    if nothing and best >= limit["factor"]:
        return Finding("too-low" if _from_scratch(bench, start) else "low-here", f"{facts}.", measured)
    return Finding("pass", f"{facts}.", measured)


def _from_scratch(bench: Bench, loss: float) -> bool:
    """Whether the weights are random: declared so, or the first loss is that of a guess."""
    init = bench.config.get("init")
    if isinstance(init, str):
        return init.lower() == "random"
    labels = bench.first_pass().graph.labels
    return bool(labels) and abs(loss / math.log(max(2, labels[0].classes)) - 1) < _GUESS


def _peaks(bench: Bench) -> list[float]:
    """The largest learning rate that each group will have: declared, by the scheduler's dry run, or as it is."""
    from steadyrun.preflight.step_trace import rate_of
    from steadyrun.probes.scheduler_dry_run import expected_rates

    groups = bench.task.optimizers[0].param_groups
    now = [rate_of(group) for group in groups]
    declared = bench.declared("lr_max")
    if declared:
        top = max(now) if max(now) > 0 else 1.0
        return [declared * (rate / top if rate else 1.0) for rate in now]
    if bench.task.scheduler is None:
        return now
    steps = int(bench.declared("total_steps") or 10_000)
    expected = expected_rates(bench.task.scheduler, bench.task.optimizers[0], bench.model, steps)
    tops = [max((rate for _, rate in knots), default=0.0) for knots in expected.groups]
    return tops if len(tops) == len(now) else now


def _loss_now(bench: Bench) -> float:
    with bench.pristine(), bench.without_gradients():
        bench.reseed()
        bench.modes(True)
        losses = [float(bench.loss(batch)) for batch in bench.batches[:_LAST]]
    return sum(losses) / max(1, len(losses)) if losses else float(bench.loss(bench.batch()))


def _trained(bench: Bench, rates: list[float], factor: float) -> float:
    """The loss of the same batches after a few steps with a short warmup to these rates."""
    groups = bench.task.optimizers[0].param_groups
    with bench.pristine():
        bench.reseed()
        bench.modes(True)
        for step in range(_STEPS):
            for group, rate in zip(groups, rates, strict=True):
                scaled = rate * factor * min(1.0, (step + 1) / _WARMUP)
                if hasattr(group["lr"], "fill_"):
                    group["lr"].fill_(scaled)
                else:
                    group["lr"] = scaled
            if not math.isfinite(bench.plain_step(bench.batches[step % len(bench.batches)])):
                return math.inf
        return _loss_now(bench)


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
