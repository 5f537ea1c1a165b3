"""L1.2: do the adapters start at zero?"""

from __future__ import annotations

import math

from steadyrun.questions import facts
from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question
from steadyrun.signals.adapters import adapters_of
from steadyrun.signals.facts import is_as_made
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import listed, shown


def find(run: Signals, limit: Limits) -> Finding:
    adapters = adapters_of(run)
    up = adapters.up
    if not up:
        raise NotApplicable("the adapters have no second matrix")
    moved = [name for name, weight in up.items() if weight.get("min") or weight.get("max")]
    still = [name for name in adapters.parameters if name not in up and _is_zero(adapters.parameters[name])]
    measured = {"matrices": float(len(up)), "not_zero": float(len(moved)), "both_zero": float(len(still))}
    if not moved and still and len(still) == len(adapters.parameters) - len(up):
        message = f"Both matrices of all {len(up):,} adapters start at zero ({listed(still)})."
        return Finding("both-zero", message, measured)
    if not moved:
        return Finding("zero", f"All {len(up):,} second matrices of the adapters start at zero.", measured)
    largest = max(abs(float(up[name].get(end) or 0.0)) for name in moved for end in ("min", "max"))
    message = f"{len(moved):,} of {len(up):,} second matrices do not start at zero, up to {shown(largest)} "
    message += f"({listed(moved)})."
    known = run.config.get("init") == "pretrained" and not _looks_random(run, moved, limit)
    return Finding("trained-before" if known else "not-zero", message, measured)


def _looks_random(run: Signals, moved: list[str], limit: Limits) -> bool:
    """Whether the adapters damage their base, or are as torch makes a layer: then they were not trained before."""
    up, loss, classes = adapters_of(run).up, run.maybe("loss"), run.declared("vocab_size")
    if any(is_as_made(up[name], limit.of(facts.QUESTION)) for name in moved):
        return True
    return loss is not None and classes is not None and classes > 1 and float(loss.values[0]) > math.log(classes)


def _is_zero(weight: dict[str, object]) -> bool:
    return weight.get("min") == 0 and weight.get("max") == 0


QUESTION = Question(
    code="L1.2",
    name="adapters start at zero",
    asks="Does the second matrix of each adapter start at zero, and the first one not?",
    why="With B = 0 the adapted model equals its base at the start. Another start changes the model before the first "
    "step; if both matrices are zero, no gradient reaches either.",
    needs=("initial_weights",),
    panel=None,
    thresholds=(),
    outcomes=(
        Outcome(name="zero", answer=PASS, meaning="the adapted model equals its base at the start"),
        Outcome(
            name="trained-before", answer=NOTE, meaning="the adapters continue from trained weights", fix="Nothing."
        ),
        Outcome(
            name="not-zero",
            answer=SUSPECT,
            meaning="the adapters change the model before the first step",
            fix="Initialise B with zeros (nn.init.zeros_). If the adapters were loaded from a checkpoint, declare "
            'config={"init": "pretrained"}.',
            experiment="Compare the outputs with adapters on and off before training. They must be equal, unless "
            "trained adapters were loaded or the base was corrected for them (PiSSA, LoftQ).",
            explains=("C1", "C4"),
        ),
        Outcome(
            name="both-zero",
            answer=SUSPECT,
            meaning="both matrices are zero, so neither gets a gradient",
            fix="Initialise A with nn.init.kaiming_uniform_ and only B with zeros.",
            experiment="Run one backward pass. If the gradients of both matrices are zero, the adapters cannot learn.",
            explains=("C4", "S", "V1"),
        ),
    ),
    find=find,
    always=True,
    special=True,
)
