"""A4.4: is anything that the optimizer holds trainable?"""

from __future__ import annotations

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question
from steadyrun.signals.facts import LEARNED
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
    if frozen:
        return Finding("some-frozen", f"{len(frozen)} of {len(known)} optimized parameters are frozen.", measured)
    return Finding(
        "pass", f"the {len(known)} optimized parameters are trainable; {len(everything)} are frozen.", measured
    )


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
            name="some-frozen",
            answer=NOTE,
            meaning="some optimized parameters are frozen",
            fix="Leave frozen parameters out of the optimizer.",
        ),
    ),
    find=find,
    always=True,
)
