"""C7.1, before training: is the clip threshold high enough to learn?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from steadyrun.preflight.p6_5_learning_rate import QUESTION as RATE
from steadyrun.preflight.same_cause import probe_of, same, same_limits
from steadyrun.questions.configuration.c7_1_travel import QUESTION as RECORDED
from steadyrun.questions.form import FAULT, Finding, Limits
from steadyrun.signals.missing import NotApplicable
from steadyrun.text import shown

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench


def find(bench: Bench, limit: Limits) -> Finding:
    from steadyrun.preflight.held_down import gradient_size, tried_without

    clip = bench.declared("clip")
    if not clip or clip < 0:
        raise NotApplicable("the config declares no clip")
    norm, _ = gradient_size(bench)
    times, measured = norm / clip, {"clipped": norm / clip}
    facts = f"The first gradient norm is {shown(norm)}, the clip threshold {shown(clip)}"
    if times <= limit["clipped"]:
        return Finding("far-enough", f"{facts}.", measured)
    trial = tried_without(bench, clip=norm)
    measured |= {"own": trial.own, "without": trial.without}
    message = f"{facts}. {trial.words('if the clip threshold equals that norm')}."
    return Finding("clip-too-tight" if trial.held_down(limit) else "far-enough", message, measured)


QUESTION = probe_of(
    RECORDED,
    asks="Does the program learn with its clip threshold, or only with one near the gradient norm?",
    needs=("clip", "optimizer", "loss_fn", "batches"),
    thresholds=same_limits(RECORDED, "clipped") + same_limits(RATE, "learns", "nothing", "factor"),
    outcomes=(
        same(RECORDED, "far-enough", meaning="the clip threshold is high enough to learn"),
        replace(
            same(
                RECORDED,
                "clip-too-tight",
                ("V1", "C3", "C4", "S", "P6.1", "P6.5"),
                "the clip threshold is too low for the program to learn",
            ),
            answer=FAULT,
            experiment="",
        ),
    ),
    find=find,
)
