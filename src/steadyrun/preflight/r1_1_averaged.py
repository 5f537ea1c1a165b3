"""R1.1, before training: are gradients averaged over the ranks?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.preflight.same_cause import probe_of, same
from steadyrun.questions.form import Finding, Limits, Threshold
from steadyrun.questions.ranks.r1_1_averaged import QUESTION as RECORDED
from steadyrun.signals.missing import NotApplicable
from steadyrun.text import listed, shown

if TYPE_CHECKING:
    from steadyrun.preflight.rank_trial import RankTrial


def find(trial: RankTrial, limit: Limits) -> Finding:
    compared = [(name, ranks) for name, ranks in trial.replicas() if _has_gradient(trial, name, ranks)]
    if not compared:
        raise NotApplicable("no parameter is known to be on several ranks")
    apart = {name: far for name, ranks in compared if (far := _apart(trial, name, ranks)) > limit["rounding"]}
    names = list(dict.fromkeys(name for name, _ in compared))
    measured = {"parameters": float(len(names)), "differ": float(len(apart))}
    if not apart:
        return Finding("pass", f"The gradients of {len(names)} parameters agree on {trial.world} ranks.", measured)
    worst = max(apart, key=lambda name: apart[name])
    norms = " and ".join(f"{shown(each.norms.get(worst, 0.0))} on rank {r}" for r, each in enumerate(trial.ranks[:2]))
    facts = f"when the optimizer steps: that of {worst} has norm {norms}"
    if len(apart) < len(names):
        message = f"The gradients of {len(apart)} of {len(names)} parameters ({listed(list(apart))}) differ {facts}."
        return Finding("partly", message, measured)
    return Finding("not-averaged", f"All gradients differ between the ranks {facts}.", measured)


def _has_gradient(trial: RankTrial, name: str, ranks: tuple[int, ...]) -> bool:
    return any(name in trial.ranks[rank].gradients for rank in ranks)


def _apart(trial: RankTrial, name: str, ranks: tuple[int, ...]) -> float:
    """How far the gradients of a parameter are apart: 0 for equal bits, else relative to the largest."""
    digests = {trial.ranks[rank].gradients.get(name) for rank in ranks}
    if len(digests) == 1:
        return 0.0
    norms = [trial.ranks[rank].norms.get(name, 0.0) for rank in ranks]
    spread = max(norms) - min(norms)
    return spread / max(norms) if max(norms) > 0 else 0.0


QUESTION = probe_of(
    RECORDED,
    asks="Are the gradients the same on every rank when the optimizer steps?",
    needs=("several ranks", "optimizer", "batches"),
    thresholds=(
        Threshold(
            name="rounding",
            value=1e-6,
            unit="relative difference",
            meaning="norms of a gradient that are nearer to each other differ by rounding",
            seed="",
            decision="an all-reduce gives every rank the same bits",
        ),
    ),
    outcomes=(
        same(RECORDED, "pass"),
        same(RECORDED, "not-averaged", ("R1.2", "R5.1")),
        same(RECORDED, "partly", ("R1.2", "R5.1")),
    ),
    find=find,
)
