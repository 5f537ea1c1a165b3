"""A few plain steps at several learning rates, or with one setting changed: how far the loss falls."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from steadyrun.preflight.bench import Bench
from steadyrun.questions.form import Limits
from steadyrun.signals.missing import NotApplicable
from steadyrun.text import shown

FACTORS = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
FAR_ABOVE = 100.0  # times the program's rate: deliberate choices are not further below a rate that learns
STEPS = 30
_WARMUP, _LAST = 15, 6
_GUESS = 0.3  # fraction of ln C: a first loss this close to it is that of an untrained model


@dataclass(frozen=True)
class Sweep:
    """The loss before the steps, and after them by the factor on the learning rates."""

    rates: list[float]
    start: float
    ends: dict[float, float]

    def fall(self, end: float) -> float:
        return (self.start - end) / self.start if math.isfinite(end) else -math.inf

    @property
    def falls(self) -> dict[float, float]:
        return {factor: self.fall(end) for factor, end in self.ends.items()}

    @property
    def best(self) -> float:
        """The factor at which the loss falls furthest."""
        return max(self.falls, key=lambda factor: self.falls[factor])

    def learns_far_above_alone(self, limit: Limits) -> bool:
        """Whether the program learns nothing at its own learning rate, and most at one far above it."""
        furthest = self.falls[self.best]
        nothing = furthest > limit["learns"] and self.falls[1.0] < limit["nothing"] * furthest
        return nothing and self.best >= limit["factor"]


def sweep(bench: Bench) -> Sweep:
    """The results of all factors; trained once for all probes."""
    if "sweep" not in bench.memo:
        begun = _begun(bench)
        ends = {factor: trained(bench, begun.rates, factor) for factor in FACTORS}
        bench.memo["sweep"] = replace(begun, ends=ends)
    made: Sweep = bench.memo["sweep"]
    return made


def _begun(bench: Bench) -> Sweep:
    """The learning rates and the first loss; raises `NotApplicable` if a change cannot be judged."""
    if len(bench.task.optimizers) != 1:
        raise NotApplicable("the task does not have exactly one optimizer, so the learning rate to change is ambiguous")
    rates = _peaks(bench)
    if not all(rate > 0 for rate in rates):
        raise NotApplicable("no learning rate above 0 is known")
    start = _loss_now(bench)
    if not math.isfinite(start) or start <= 0:
        raise NotApplicable(f"the first loss is {shown(start)}; its relative fall has no meaning")
    return Sweep(rates, start, {})


def from_scratch(bench: Bench, loss: float) -> bool:
    """Whether the weights are random: declared, or with the first loss of a uniform guess."""
    init = bench.config.get("init")
    if isinstance(init, str):
        return init.lower() == "random"
    labels = bench.first_pass().graph.labels
    return bool(labels) and abs(loss / math.log(max(2, labels[0].classes)) - 1) < _GUESS


def trained(
    bench: Bench, rates: list[float], factor: float, *, clip: float | None = None, epsilon: float | None = None
) -> float:
    """The loss of the same batches after a few steps with a short warmup to these learning rates.

    `clip` and `epsilon` replace those of the program.
    """
    groups = bench.task.optimizers[0].param_groups
    with bench.pristine():
        bench.reseed()
        bench.modes(True)
        for group in groups:
            group |= {} if epsilon is None else {"eps": epsilon}
        for step in range(STEPS):
            for group, rate in zip(groups, rates, strict=True):
                scaled = rate * factor * min(1.0, (step + 1) / _WARMUP)
                if hasattr(group["lr"], "fill_"):
                    group["lr"].fill_(scaled)
                else:
                    group["lr"] = scaled
            if not math.isfinite(bench.plain_step(bench.batches[step % len(bench.batches)], clip)):
                return math.inf
        return _loss_now(bench)


def _peaks(bench: Bench) -> list[float]:
    """The peak learning rate of each group: declared, from the scheduler's dry run, or the current one."""
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
