"""A1.2, before training: are the gradients there when the optimizer steps?"""

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
            f"{counted(len(erased), 'parameter')} with a gradient after backward and none at the step: {listed(lost)}.",
            {"erased": float(len(erased))},
        )
    if first.closure:
        raise NotApplicable("the optimizer calls backward itself")
    if not first.stepped:
        raise NotApplicable("no optimizer steps on the first call: gradients are kept on purpose, or it was skipped")
    return Finding("pass", "the gradients that backward made are there when the optimizer steps.")


def _erased(trace: StepTrace) -> list[int]:
    """What got a gradient and had none at the step, where that is so for everything the optimizer holds."""
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
    asks="Are the gradients that backward made still there when the program's step calls the optimizer?",
    needs=("train_step", "optimizer", "batches"),
    outcomes=(same(RECORDED, "pass"), same(RECORDED, "erased", ("C4", "S", "P6"))),
    find=find,
)
