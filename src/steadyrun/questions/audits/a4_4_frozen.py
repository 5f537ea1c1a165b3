"""A4.4: are the optimized parameters trainable?"""

from __future__ import annotations

from typing import Any

import numpy as np

from steadyrun.questions.facts import QUESTION as FACTS
from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.facts import LEARNED, is_as_made, is_matrix
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.run_signals import Signals
from steadyrun.text import listed


def find(run: Signals, limit: Limits) -> Finding:
    weights = {str(weight.get("name")): weight for weight in run.listed("initial_weights")}
    groups = run.listed("param_groups")
    if not weights or not groups:
        raise MissingSignal("param_groups")
    optimized = [str(name) for group in groups for name in _names(group)]
    known = [name for name in optimized if name in weights]
    frozen = [name for name in known if weights[name].get("trainable") is False]
    measured = {"optimized": float(len(known)), "frozen": float(len(frozen))}
    if known and len(frozen) == len(known):
        message = f"All {len(known):,} parameters in the optimizer are frozen ({listed(frozen)})."
        return Finding("nothing-trainable", message, measured)
    if closed := _closed(run, weights, limit):
        message = f"{listed(closed)} {_are(closed)} frozen with all weights 0, and the gradient norm is 0 in the first "
        message += f"{limit.count('first')} steps."
        return Finding("frozen-at-zero", message, measured)
    everything = [name for name, weight in weights.items() if weight.get("trainable") is False]
    if frozen and run.config.get("init") == "random" and known_facts(run, limit).start != LEARNED:
        message = f"{len(frozen):,} of {len(known):,} optimized parameters {_are(frozen)} frozen at random weights "
        message += f"({listed(frozen)})."
        return Finding("frozen-at-random", message, measured)
    copied = tuple(f"{part.get('name')}." for part in run.listed("inner_copies"))  # A2.5 asks whether these follow
    alone = [name for name in everything if not name.startswith(copied)] if copied else everything
    if (drawn := _as_drawn([weights[name] for name in alone], limit.of(FACTS))) is not None:
        message = f"{drawn} frozen matrices look like torch's random initialisation ({listed(everything)})."
        return Finding("perhaps-at-random", message, measured)
    if frozen:
        return Finding(
            "some-frozen", f"{len(frozen):,} of {len(known):,} optimized parameters {_are(frozen)} frozen.", measured
        )
    message = f"All {len(known):,} optimized parameters are trainable; {len(everything):,} others are frozen."
    return Finding("pass", message, measured)


def _closed(run: Signals, weights: dict[str, dict[str, Any]], limit: Limits) -> list[str]:
    """Frozen matrices of zeros in a run without any gradient: nothing passes them."""
    norms = run.maybe("grad_norm")
    if norms is None or len(norms) < limit["first"] or np.any(norms.values[: limit.count("first")] != 0):
        return []
    zero = [name for name, weight in weights.items() if weight.get("min") == 0 == weight.get("max")]
    return [
        name for name in zero if weights[name].get("trainable") is False and len(weights[name].get("shape") or ()) > 1
    ]


def _as_drawn(frozen: list[dict[str, Any]], limit: Limits) -> str | None:
    """How many of the frozen matrices fill the range of torch's initialisation, if at least half do."""
    matrices = [weight for weight in frozen if is_matrix(weight, limit)]
    fresh = sum(is_as_made(weight, limit) for weight in matrices)
    return f"{fresh} of {len(matrices)}" if matrices and fresh >= len(matrices) / 2 else None


def _names(group: dict[str, object]) -> list[object]:
    parameters = group.get("parameters")
    return parameters if isinstance(parameters, list) else []


def _are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


QUESTION = Question(
    code="A4.4",
    name="optimized parameters are trainable",
    asks="Are the optimized parameters trainable?",
    why="Parameters with requires_grad=False get no gradient: an optimizer that holds only those does nothing.",
    needs=("param_groups", "initial_weights"),
    panel=None,
    thresholds=(
        Threshold(
            name="first",
            value=5,
            unit="steps",
            meaning="how many first steps must have a gradient of 0",
            seed="",
            decision="as in C1.2",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the optimized parameters are trainable"),
        Outcome(
            name="nothing-trainable",
            answer=FAULT,
            meaning="every optimized parameter is frozen",
            fix="Call requires_grad_(True) on the parameters that should learn, and build the optimizer on them.",
            explains=("C", "S", "A4", "P4", "P6"),
        ),
        Outcome(
            name="frozen-at-random",
            answer=FAULT,
            meaning="optimized parameters are frozen at their random weights",
            fix="Call requires_grad_(True) on them, or leave them out of the optimizer if this is intended.",
            explains=("C4", "S", "P4", "P6"),
        ),
        Outcome(
            name="frozen-at-zero",
            answer=FAULT,
            meaning="a frozen layer of zeros stops the gradient: nothing before it learns",
            fix="Call requires_grad_(True) on it, or load its weights.",
            explains=("C", "S", "V", "A4", "P4", "P6"),
        ),
        Outcome(
            name="perhaps-at-random",
            answer=SUSPECT,
            meaning="frozen weights look random: a checkpoint may not have been loaded",
            fix="Load the checkpoint with load_state_dict(state, strict=True), and look for names that do not match.",
            experiment="Compare a frozen weight with the checkpoint. If they differ, it was not loaded. If random "
            "weights are intended, ignore this.",
            explains=("V1.2", "S1.4"),
        ),
        Outcome(
            name="some-frozen",
            answer=NOTE,
            meaning="some optimized parameters are frozen",
            fix="Leave frozen parameters out of the optimizer.",
        ),
    ),
    find=find,
    always=True,
)
