"""C6.1: which parameters weight decay applies to."""

from __future__ import annotations

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question
from steadyrun.signals.declared_schedule import number
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import counted

_SHOWN = 4


def find(run: Signals, _limit: Limits) -> Finding:
    decayed = _decayed(run)
    exempt = run.config.get("no_decay")
    shapes = {str(entry.get("name")): entry.get("shape") for entry in run.listed("initial_weights")}
    if isinstance(exempt, str):
        exempt = [exempt]
    if isinstance(exempt, list | tuple) and exempt:
        parts = [str(part).lower() for part in exempt if str(part)]
        wrong = [name for name in decayed if _exempt(name.lower(), parts, shapes.get(name))]
        measured = {"exempt_but_decayed": float(len(wrong)), "decayed": float(len(decayed))}
        facts = f"config no_decay lists {', '.join(repr(str(part)) for part in exempt if str(part))}"
        if wrong:
            those = f"{counted(len(wrong), 'matching parameter')} {_have(wrong)} weight decay: {_list(wrong)}"
            return Finding("declared-exempt", f"{facts}, but {those}.", measured)
        return Finding(
            "pass", f"{facts}; weight decay applies to {counted(len(decayed), 'other parameter')}.", measured
        )
    vectors = [name for name in decayed if isinstance(shape := shapes.get(name), list) and len(shape) < 2]
    measured = {"vectors_decayed": float(len(vectors)), "decayed": float(len(decayed))}
    if vectors:
        message = f"{_list(vectors)} {_have(vectors)} weight decay; biases and norm scales usually have none."
        return Finding("vectors-decayed", message, measured)
    message = f"Weight decay applies to {counted(len(decayed), 'parameter')}, none of them one-dimensional."
    return Finding("pass", message, measured)


def _decayed(run: Signals) -> list[str]:
    """The names of the parameters in groups with weight decay."""
    groups = run.listed("param_groups")
    if not groups:
        raise MissingSignal("param_groups")
    decayed = []
    for group in groups:
        settings, names = group.get("settings"), group.get("parameters")
        if isinstance(settings, dict) and isinstance(names, list) and number(settings.get("weight_decay")):
            decayed += [str(name) for name in names]
    if not decayed:
        raise NotApplicable("no param group has weight decay")
    return decayed


def _exempt(name: str, parts: list[str], shape: object) -> bool:
    """Whether a declared entry names this parameter: a vector by any part of its name, a matrix by a whole word."""
    if isinstance(shape, list) and len(shape) < 2:
        return any(part in name for part in parts)
    return any(part == name or part in name.split(".") for part in parts)


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _have(names: list[str]) -> str:
    return "has" if len(names) == 1 else "have"


QUESTION = Question(
    code="C6.1",
    name="weight-decay groups",
    asks="Does weight decay apply to matrices and embeddings, and not to biases and norm scales?",
    why="Weight decay pulls every parameter towards zero. For a matrix that is regularisation; for a bias or the "
    "scale of a norm layer it is a drift that the gradient must undo.",
    needs=("param_groups", "no_decay"),
    panel=None,
    thresholds=(),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="weight decay applies to the right parameters"),
        Outcome(
            name="vectors-decayed",
            answer=NOTE,
            meaning="biases or norm scales have weight decay",
            fix="Put biases and norm scales in a param group with weight_decay=0. No action is needed if the decay is "
            "intended: its effect is small.",
        ),
        Outcome(
            name="declared-exempt",
            answer=FAULT,
            meaning="parameters that config no_decay exempts have weight decay",
            fix="Move these parameters to a param group with weight_decay=0, or remove the entry from no_decay if they "
            "should decay.",
        ),
    ),
    find=find,
)
