"""A4.4: is anything that the optimizer holds trainable?"""

from __future__ import annotations

from typing import Any

from steadyrun.questions.facts import QUESTION as FACTS
from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question
from steadyrun.signals.facts import LEARNED, is_as_made, is_matrix
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.run_signals import Signals
from steadyrun.text import listed, percent


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
        message = f"all {len(known)} parameters that the optimizer holds are frozen ({listed(frozen)})."
        return Finding("nothing-trainable", message, measured)
    everything = [name for name, weight in weights.items() if weight.get("trainable") is False]
    if frozen and run.config.get("init") == "random" and known_facts(run, limit).start != LEARNED:
        share = len(frozen) / len(known)
        message = (
            f"{len(frozen)} of {len(known)} optimized parameters ({percent(share)}) are frozen at random weights: "
            f"{listed(frozen)}."
        )
        return Finding("frozen-at-random", message, measured)
    if (drawn := _as_drawn([weights[name] for name in everything], limit.of(FACTS))) is not None:
        message = f"{drawn} frozen matrices are as torch draws them: nothing was loaded ({listed(everything)})."
        return Finding("perhaps-at-random", message, measured)
    if frozen:
        return Finding("some-frozen", f"{len(frozen)} of {len(known)} optimized parameters are frozen.", measured)
    return Finding(
        "pass", f"the {len(known)} optimized parameters are trainable; {len(everything)} are frozen.", measured
    )


def _as_drawn(frozen: list[dict[str, Any]], limit: Limits) -> str | None:
    """How many of the frozen matrices fill the range of torch's random start, if it is half of them."""
    matrices = [weight for weight in frozen if is_matrix(weight, limit)]
    fresh = sum(is_as_made(weight, limit) for weight in matrices)
    return f"{fresh} of {len(matrices)}" if matrices and fresh >= len(matrices) / 2 else None


def _names(group: dict[str, object]) -> list[object]:
    parameters = group.get("parameters")
    return parameters if isinstance(parameters, list) else []


QUESTION = Question(
    code="A4.4",
    name="what is optimized is trainable",
    asks="Does the optimizer hold parameters that can move?",
    why="Parameters with requires_grad=False get no gradient: an optimizer that holds nothing else does nothing.",
    needs=("param_groups", "initial_weights"),
    panel=None,
    thresholds=(),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="what is optimized can move"),
        Outcome(
            name="nothing-trainable",
            answer=FAULT,
            meaning="everything that is optimized is frozen",
            fix="Unfreeze what is to learn (requires_grad_(True)), and build the optimizer on it.",
            explains=("C", "S", "A4", "P4", "P6"),
        ),
        Outcome(
            name="frozen-at-random",
            answer=FAULT,
            meaning="random weights were frozen although they are optimized, and the run declares that it starts "
            "from random "
            "ones",
            fix="Unfreeze them (requires_grad_(True)), or leave them out of the optimizer if it is meant.",
            explains=("C4", "S", "P4", "P6"),
        ),
        Outcome(
            name="perhaps-at-random",
            answer=SUSPECT,
            meaning="frozen weights are as torch draws them: a checkpoint was not loaded into them",
            fix="Load the checkpoint with load_state_dict(state, strict=True), and look for names that do not match.",
            experiment="Compare one frozen weight with the checkpoint's. If they differ, nothing was loaded; if random "
            "weights are meant, this is not a fault.",
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
