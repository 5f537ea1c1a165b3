"""R1.5, before training: does clipping use the norm of the whole gradient?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.preflight.same_cause import probe_of, same, same_limits
from steadyrun.questions.form import Finding, Limits, Threshold
from steadyrun.questions.ranks.r1_5_whole_norm import QUESTION as RECORDED
from steadyrun.signals.missing import NotApplicable
from steadyrun.text import apart, shown

if TYPE_CHECKING:
    from steadyrun.preflight.rank_trial import RankTrial


def find(trial: RankTrial, limit: Limits) -> Finding:
    if not any(placement.shards for placement in trial.ranks[0].layout.parameters.values()):
        raise NotApplicable("no parameter is sharded")
    factors, error = _factors(trial, limit["near"])
    norms = [facts.clips[-1][1] for facts in trial.ranks if facts.clips]
    if not norms and not factors:
        raise NotApplicable("the step does not clip the gradient")
    measured = {f"norm/{rank}": norm for rank, norm in enumerate(norms)}
    measured |= {f"factor/{rank}": factor for rank, factor in enumerate(factors)}
    if norms and max(norms) - min(norms) > limit["same"] * max(norms):
        shown_norms = ", ".join(f"{text} on rank {rank}" for rank, text in enumerate(apart(*norms)))
        return Finding("local-norm", f"The norm used for clipping is {shown_norms}: each rank's own shard.", measured)
    if factors and max(factors) - min(factors) > max(limit["same"], limit["errors"] * error) * max(factors):
        by_rank = ", ".join(f"{shown(factor)} on rank {rank}" for rank, factor in enumerate(factors))
        return Finding("local-norm", f"The step multiplies the gradient by {by_rank}.", measured)
    if not norms:
        raise NotApplicable("the step does not clip the gradient")
    return Finding("pass", f"Every rank clips with the norm {shown(norms[0])} of the whole gradient.", measured)


def _factors(trial: RankTrial, near: float) -> tuple[list[float], float]:
    """By how much each rank multiplies its shard of the gradient, and what this leaves unexplained at most.

    No factors if the step's gradient is another one.
    """
    from steadyrun.preflight.rank_gradients import JOINED, JOINED_BY_PART, RANKS, STEP, fit, row

    factors, unexplained = [], 0.0
    for facts in trial.ranks:
        if facts.products is None:
            return [], 0.0
        mean = row(facts.products, *range(RANKS, len(facts.products)))
        others = (row(facts.products, JOINED), row(facts.products, JOINED_BY_PART), mean)
        times, rest = min((fit(facts.products, row(facts.products, STEP), other) for other in others), key=_rest)
        if not rest <= near:
            return [], 0.0
        factors.append(times)
        unexplained = max(unexplained, rest)
    return factors, unexplained


def _rest(fitted: tuple[float, float]) -> float:
    return fitted[1]


QUESTION = probe_of(
    RECORDED,
    asks="Do the ranks clip with the norm of the whole gradient, not of their own shards?",
    needs=("several ranks", "train_step", "optimizer"),
    thresholds=(
        *same_limits(RECORDED, "same"),
        Threshold(
            name="near",
            value=0.05,
            unit="relative difference",
            meaning="a step's gradient that differs by less from the joined batch's is a multiple of it",
            seed="",
            decision="the same passes differ by 1e-6 in float32 and by 1e-2 under autocast",
        ),
        Threshold(
            name="errors",
            value=3,
            unit="times what the factors leave unexplained",
            meaning="factors of two ranks that are nearer to each other are equal",
            seed="",
            decision="a factor is known as exactly as the gradient is a multiple: to 1e-6 in float32",
        ),
    ),
    outcomes=(
        same(RECORDED, "pass"),
        same(RECORDED, "local-norm", ("R5.1",)),
    ),
    find=find,
)
