"""R1.6, before training: do the shards of a parameter differ?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.preflight.same_cause import probe_of, same
from steadyrun.questions.form import Finding, Limits
from steadyrun.questions.ranks.r1_6_shards_differ import QUESTION as RECORDED
from steadyrun.signals.missing import NotApplicable
from steadyrun.text import listed

if TYPE_CHECKING:
    from steadyrun.preflight.rank_trial import RankTrial


def find(trial: RankTrial, _limit: Limits) -> Finding:
    compared, equal = set(), []
    for rank, facts in enumerate(trial.ranks):
        for name, placement in facts.layout.parameters.items():
            if not placement.shards or name in facts.constant:
                continue
            compared.add(name)
            others = [other for other in placement.shards if trial.ranks[other].start.get(name) == facts.start[name]]
            if others and name not in equal:
                equal.append(name)
                first = (rank, others[0])
    if not compared:
        raise NotApplicable("no parameter with different elements is sharded")
    measured = {"parameters": float(len(compared)), "equal": float(len(equal))}
    if equal:
        message = (
            f"The shards of {len(equal)} of {len(compared)} parameters ({listed(equal)}) are equal on ranks "
            f"{first[0]} and {first[1]}: they were drawn with the same random numbers."
        )
        return Finding("equal", message, measured)
    return Finding("pass", f"The shards of {len(compared)} parameters differ between the ranks.", measured)


QUESTION = probe_of(
    RECORDED,
    asks="Do the ranks hold different shards at the start?",
    needs=("several ranks",),
    outcomes=(
        same(RECORDED, "pass"),
        same(RECORDED, "equal"),
    ),
    find=find,
)
