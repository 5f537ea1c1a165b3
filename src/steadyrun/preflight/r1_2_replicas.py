"""R1.2, before training: do replicas agree before and after a step?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.preflight.same_cause import probe_of, same
from steadyrun.questions.form import Finding, Limits
from steadyrun.questions.ranks.r1_2_replicas import QUESTION as RECORDED
from steadyrun.signals.missing import NotApplicable
from steadyrun.text import listed

if TYPE_CHECKING:
    from steadyrun.preflight.rank_trial import Digests, RankTrial


def find(trial: RankTrial, _limit: Limits) -> Finding:
    compared = list(trial.replicas())
    if not compared:
        raise NotApplicable("no parameter is known to be on several ranks")
    names = list(dict.fromkeys(name for name, _ in compared))
    at_start = _differ(compared, [facts.start for facts in trial.ranks])
    after = _differ(compared, [facts.after for facts in trial.ranks])
    measured = {"parameters": float(len(names)), "start": float(len(at_start)), "after": float(len(after))}
    if at_start:
        message = (
            f"{len(at_start)} of {len(names)} parameters ({listed(at_start)}) differ between the ranks at the start."
        )
        return Finding("other-start", message, measured)
    if after:
        message = (
            f"{len(after)} of {len(names)} parameters ({listed(after)}), equal at the start, differ after one step."
        )
        return Finding("parted", message, measured)
    message = f"{len(names)} parameters are equal on {trial.world} ranks before and after a step."
    return Finding("pass", message, measured)


def _differ(compared: list[tuple[str, tuple[int, ...]]], digests: list[Digests]) -> list[str]:
    return [name for name, ranks in compared if len({digests[rank].get(name) for rank in ranks}) > 1]


QUESTION = probe_of(
    RECORDED,
    asks="Do the ranks hold the same parameters before and after a step?",
    needs=("several ranks", "optimizer", "batches"),
    outcomes=(
        same(RECORDED, "pass"),
        same(RECORDED, "other-start", ("R5.1",)),
        same(RECORDED, "parted"),
    ),
    find=find,
)
