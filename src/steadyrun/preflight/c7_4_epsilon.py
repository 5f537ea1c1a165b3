"""C7.4, before training: is Adam's epsilon small enough to learn?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from steadyrun.preflight.p6_5_learning_rate import QUESTION as RATE
from steadyrun.preflight.same_cause import probe_of, same, same_limits
from steadyrun.questions.configuration.c7_4_adam import QUESTION as RECORDED
from steadyrun.questions.form import FAULT, Finding, Limits
from steadyrun.signals.declared_schedule import number
from steadyrun.signals.missing import NotApplicable
from steadyrun.text import percent, shown

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench

_USUAL = 1e-8


def find(bench: Bench, limit: Limits) -> Finding:
    from steadyrun.preflight.held_down import gradient_size, tried_without

    groups = [group for optimizer in bench.task.optimizers for group in optimizer.param_groups]
    epsilons = [epsilon for group in groups if "betas" in group and (epsilon := number(group.get("eps")))]
    if not epsilons or len(epsilons) < len(groups):
        raise NotApplicable("not every param group has Adam's settings")
    epsilon, (_, size) = min(epsilons), gradient_size(bench)
    share = epsilon / (epsilon + size)
    measured = {"epsilon": share}
    facts = f"Epsilon {shown(epsilon)} is {percent(share)} of Adam's denominator at the first gradient"
    if share <= limit["epsilon"] or epsilon <= _USUAL:
        return Finding("in-range", f"{facts}.", measured)
    trial = tried_without(bench, epsilon=_USUAL)
    measured |= {"own": trial.own, "without": trial.without}
    message = f"{facts}. {trial.words(f'with epsilon {_USUAL:g}')}."
    return Finding("epsilon" if trial.held_down(limit) else "in-range", message, measured)


QUESTION = probe_of(
    RECORDED,
    asks="Does the program learn with its epsilon, or only with 1e-8?",
    needs=("optimizer", "loss_fn", "batches"),
    thresholds=same_limits(RECORDED, "epsilon") + same_limits(RATE, "learns", "nothing", "factor"),
    outcomes=(
        same(RECORDED, "in-range", meaning="epsilon is small relative to the gradients, or harmless"),
        replace(
            same(
                RECORDED,
                "epsilon",
                ("V1", "C3", "C4", "C7.1", "S", "P6.1", "P6.5"),
                "Adam's epsilon is too large for the program to learn",
            ),
            answer=FAULT,
            experiment="",
        ),
    ),
    find=find,
)
