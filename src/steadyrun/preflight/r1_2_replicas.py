"""R1.2, before training: do replicas agree before and after a step?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.questions.form import FAULT, PASS, Finding, Limits, Outcome, Question
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


QUESTION = Question(
    code="R1.2",
    name="replicas equal",
    asks="Do the ranks hold the same parameters before and after a step?",
    why="",
    needs=("several ranks", "optimizer", "batches"),
    panel=None,
    thresholds=(),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="replicas are equal before and after a step"),
        Outcome(
            name="other-start",
            answer=FAULT,
            meaning="replicas start from different parameters",
            fix="Seed every rank alike before you build the model, or broadcast the parameters of rank 0.",
            explains=("R5.1",),
        ),
        Outcome(
            name="parted",
            answer=FAULT,
            meaning="replicas differ after one step",
            fix="Use the same learning rate, clipping and optimizer state on every rank.",
        ),
    ),
    find=find,
    tried=True,
)
