"""A1.2, before training: do gradients exist when the optimizer steps?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.preflight.same_cause import probe_of, same
from steadyrun.questions.audits.a1_2_erased import QUESTION as RECORDED
from steadyrun.questions.form import Finding, Limits
from steadyrun.signals.missing import NotApplicable
from steadyrun.text import counted, listed

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench
    from steadyrun.preflight.step_trace import StepTrace


def find(bench: Bench, _limit: Limits) -> Finding:
    assert bench.train_step is not None
    from steadyrun.preflight.rehearsal import names_of, rehearsal

    first = rehearsal(bench).first
    if erased := _erased(first):
        lost = names_of(bench, erased)
        return Finding(
            "erased",
            f"{counted(len(erased), 'parameter')} had a gradient after backward and none at the step: {listed(lost)}.",
            {"erased": float(len(erased))},
        )
    if first.closure:
        raise NotApplicable("the optimizer calls backward itself")
    if not first.stepped:
        raise NotApplicable(
            "no optimizer steps on the first call: the program accumulates gradients, or the step was skipped"
        )
    return Finding("pass", "The optimizer steps with the gradients that backward computed.")


def _erased(trace: StepTrace) -> list[int]:
    """Parameters that lost their gradient before the step, if every parameter of that optimizer did."""
    from steadyrun.preflight.step_trace import STEP, any_number

    for event in trace.events:
        if event.kind != STEP or trace.closure:
            continue
        arrived = event.members & trace.arrived
        here = {key for key in event.members if key in trace.gradients and any_number(trace.gradients[key])}
        if arrived and not here:
            return sorted(arrived)
    return []


QUESTION = probe_of(
    RECORDED,
    asks="Do the gradients from backward still exist when the optimizer steps?",
    needs=("train_step", "optimizer", "batches"),
    outcomes=(same(RECORDED, "pass"), same(RECORDED, "erased", ("C4", "S", "P6"))),
    find=find,
)
