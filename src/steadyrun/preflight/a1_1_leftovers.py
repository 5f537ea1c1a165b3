"""A1.1, before training: are gradients empty when the next backward begins?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.preflight.same_cause import probe_of, same
from steadyrun.questions.audits.a1_1_leftovers import QUESTION as RECORDED
from steadyrun.questions.form import Finding, Limits
from steadyrun.signals.missing import NotApplicable
from steadyrun.text import counted, listed

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench


def find(bench: Bench, _limit: Limits) -> Finding:
    assert bench.train_step is not None
    from steadyrun.preflight.rehearsal import names_of, rehearsal

    made = rehearsal(bench)
    if made.first.closure or made.second.closure:
        raise NotApplicable("the optimizer calls backward itself")
    if not made.first.stepped or not made.second.stepped:
        raise NotApplicable(
            "no optimizer steps on every call: the program accumulates gradients, or a step was skipped"
        )
    measured = {"left": float(len(made.left)), "carried": float(len(made.carried))}
    if made.carried:
        lost = names_of(bench, made.carried)
        return Finding(
            "not-cleared",
            f"The second step's gradient still contains the first step's in "
            f"{counted(len(made.carried), 'parameter')}: {listed(lost)}.",
            measured,
        )
    if made.left:
        return Finding(
            "pass",
            f"Gradients of {counted(len(made.left), 'parameter')} remain after a step and are cleared before the next.",
            measured,
        )
    return Finding("pass", "A step leaves no gradients behind.", measured)


QUESTION = probe_of(
    RECORDED,
    asks="Are the gradients of one step cleared before the next backward?",
    needs=("train_step", "optimizer", "batches"),
    outcomes=(
        same(RECORDED, "pass"),
        same(RECORDED, "not-cleared", ("C3", "C4", "S", "P6")),
    ),
    find=find,
)
