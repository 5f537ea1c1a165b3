"""Causes in the arithmetic: an operation without a finite result, and the update that spreads it."""

from __future__ import annotations

import math

from steadyrun.postmortem.causes.hypothesis import AGAINST, FAVOURS, PROVES, RULES_OUT, Cause, Grounds, Sign, examples
from steadyrun.postmortem.remedies import FIX, Remedy
from steadyrun.store.incident_files import part, text, to_number

_PROGRAM = frozenset({"forward", "loss", "backward", "update", "state"})
_GROWN_NUMBERS = frozenset({"float32-overflow", "bf16-overflow"})  # where the values overflowed, not why they grew
_GROWN = 3.0  # factor on its mean before: panel 4's band


def _weigh_operation(look: Grounds) -> list[Sign]:
    proofs, signs = look.case.proofs, look.experiments("model", exhaustive=False)
    outcome = text(part(proofs.replay, "precision"), "outcome")
    if text(proofs.culprit, "stage") in _PROGRAM and proofs.reproduced:
        grown = text(proofs.culprit, "cause") in _GROWN_NUMBERS
        signs += look.sign("culprit", FAVOURS, 3.0) if outcome == "overflow" or grown else look.sign("culprit", PROVES)
        signs += look.sign("precision", RULES_OUT if outcome == "overflow" else FAVOURS)
    if text(proofs.culprit, "stage") == "data" and proofs.reproduced:
        return signs + look.sign("culprit", AGAINST, 3.0)
    if not look.case.moment.non_finite:
        return signs + _finite(look)
    signs += look.sign("walk:D1.3", FAVOURS, 2.0)
    return signs + (look.sign("activation", FAVOURS) if (look.value("activation") or 0) > _GROWN else [])


def _finite(look: Grounds) -> list[Sign]:
    """A finite spike: no operation failed, although a layer may have grown."""
    grown = look.value("activation")
    signs = look.sign("loss", AGAINST, 2.0)
    return signs + (look.sign("activation", FAVOURS if grown > _GROWN else AGAINST) if grown is not None else [])


def _operation_sentence(look: Grounds) -> str:
    culprit = look.case.proofs.culprit
    where = f" ({text(culprit, 'where')})" if text(culprit, "where") else ""
    said = text(culprit, "message").strip().removesuffix(".")
    return f"{said}{where}." if said else "The model itself causes it."


_SAFE = {"float16": {"eps": "1e-4", "large": "10"}}  # 1e-12 is zero in float16, and exp(12) is infinite
_ELSEWHERE = {"eps": "1e-12", "large": "80"}
_STABLE = {
    "log": "x.log() -> x.clamp_min({eps}).log(); if x is a softmax, use log_softmax of the logits",
    "div": "a / b -> a / b.clamp_min({eps})",
    "sqrt": "x.sqrt() -> (x + {eps}).sqrt()",
    "rsqrt": "x.rsqrt() -> (x + {eps}).rsqrt()",
    "norm": "x.norm() -> (x.square().sum() + {eps}).sqrt()",
    "linalg_vector_norm": "x.norm() -> (x.square().sum() + {eps}).sqrt()",
    "exp": "x.exp() -> x.clamp(max={large}).exp(); for a softmax, use softmax or logsumexp of x",
    "softmax": "leave at least one position of every row unmasked",
    "pow": "x.pow(p) -> x.clamp_min({eps}).pow(p)",
    "acos": "x.acos() -> x.clamp(-1 + 1e-6, 1 - 1e-6).acos()",
}


def _operation_remedies(look: Grounds) -> list[Remedy]:
    culprit = look.case.proofs.culprit
    operation, fix = text(culprit, "operation"), text(culprit, "fix")
    if not fix:
        said = "Change the part of the model that the experiments point to."
        return [Remedy(FIX, said, "the change that removed the incident, section 3", _operation_sentence(look))]
    where = text(culprit, "where") or text(culprit, "module") or "the loss function"
    which = f", for {examples(look)}" if examples(look) else ""
    why = f"{operation} produced the first {text(culprit, 'value')}{which}"
    return [Remedy(FIX, fix, f"{where}: {_stable(look) or f'keep the input of {operation} in range, as above'}", why)]


def _stable(look: Grounds) -> str:
    """The operation in a numerically safe form; "" if there is none to suggest."""
    culprit = look.case.proofs.culprit
    if text(culprit, "cause").endswith("-overflow") and text(culprit, "cause") != "exp-overflow":
        return ""  # the values exploded: guarding this operation does not help
    known = _STABLE.get(text(culprit, "operation").removeprefix("_").rstrip("_"), "")
    return known.format_map(_SAFE.get(text(culprit, "dtype"), _ELSEWHERE))


def _operation_lesson(look: Grounds) -> str:
    culprit = look.case.proofs.culprit
    named = f"`{text(culprit, 'operation')}`" if text(culprit, "operation") else "an operation"
    where = text(culprit, "where") or text(culprit, "module") or "the model"
    what = "got inputs without a finite result or gradient"
    guard = f"`{_stable(look)}`" if _stable(look) else text(culprit, "fix").removesuffix(".") or "guard it"
    return f"In {where}, {named} {what}; {guard}."


OPERATION = Cause(
    "model-numerics",
    "Numerics of the model or the loss",
    "an operation has no finite result for its inputs (log of zero, 0/0, a fully masked row)",
    4,
    _weigh_operation,
    _operation_sentence,
    _operation_remedies,
    _operation_lesson,
)


def _weigh_update(look: Grounds) -> list[Sign]:
    violent = part(look.case.proofs.replay, "violent")
    ratio = to_number(violent.get("ratio"))
    destroyed = ratio is not None and not math.isfinite(ratio)
    signs = look.sign("violent", FAVOURS, 3.0 if destroyed else 1.0)
    share = look.value("not-finite")
    if share is not None:
        signs += look.sign("not-finite", FAVOURS if share > 0.5 else AGAINST, 1.0)
    asked = look.case.answer("D1.3")
    if asked is not None and asked.answer.outcome == "parameter-first":
        signs += look.sign("walk:D1.3", FAVOURS, 2.0)
    return signs


def _update_sentence(look: Grounds) -> str:
    said = f": {look.observations['violent'].text}" if "violent" in look.observations else ""
    return f"A destructive update wrote a non-finite value into a parameter{said}."


UPDATE = Cause(
    "destructive-update",
    "A destructive update",
    "a destructive update wrote a non-finite value into a parameter, which affects every later step",
    5,
    _weigh_update,
    _update_sentence,
    lambda _look: [],
    lambda _look: (
        "One non-finite update destroys every later step; check that gradients are finite before optimizer.step()."
    ),
    applies=lambda look: look.case.moment.non_finite,
    mechanism=True,
)
