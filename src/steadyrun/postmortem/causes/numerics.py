"""Causes in the arithmetic: an operation without a finite answer, and the update that spreads it."""

from __future__ import annotations

import math

from steadyrun.postmortem.causes.form import AGAINST, FAVOURS, PROVES, RULES_OUT, Cause, Look, Sign
from steadyrun.postmortem.proofs import part, text, to_number
from steadyrun.postmortem.remedies import FIX, Remedy

_PROGRAM = frozenset({"forward", "loss", "backward", "update", "state"})
_GROWN = 3.0  # times its mean before: panel 4's band


def _weigh_operation(look: Look) -> list[Sign]:
    proofs, signs = look.case.proofs, look.experiments("model", exhaustive=False)
    outcome = text(part(proofs.replay, "precision"), "outcome")
    if text(proofs.culprit, "stage") in _PROGRAM and proofs.reproduced:
        signs += look.sign("culprit", FAVOURS if outcome == "overflow" else PROVES)
        signs += look.sign("precision", RULES_OUT if outcome == "overflow" else FAVOURS)
    if not look.case.moment.non_finite:
        return signs + _finite(look)
    signs += look.sign("walk:D1.3", FAVOURS, 2.0)
    return signs + (look.sign("activation", FAVOURS) if (look.value("activation") or 0) > _GROWN else [])


def _finite(look: Look) -> list[Sign]:
    """A spike of finite numbers: no operation failed, though a layer may have grown."""
    grown = look.value("activation")
    signs = look.sign("loss", AGAINST, 2.0)
    return signs + (look.sign("activation", FAVOURS if grown > _GROWN else AGAINST) if grown is not None else [])


def _operation_sentence(look: Look) -> str:
    culprit = look.case.proofs.culprit
    place = f" ({text(culprit, 'where')})" if text(culprit, "where") else ""
    said = text(culprit, "message").strip().removesuffix(".")
    return f"{said}{place}." if said else "The model itself makes it."


_STABLE = {
    "log": "x.log() -> x.clamp_min(1e-12).log(); where x is a softmax, log_softmax of the logits",
    "div": "a / b -> a / b.clamp_min(1e-12)",
    "sqrt": "x.sqrt() -> (x + 1e-12).sqrt()",
    "rsqrt": "x.rsqrt() -> (x + 1e-12).rsqrt()",
    "norm": "x.norm() -> (x.square().sum() + 1e-12).sqrt()",
    "exp": "x.exp() -> (x - x.amax(-1, keepdim=True)).exp()",
    "softmax": "leave at least one position of every row unmasked",
    "pow": "x.pow(p) -> x.clamp_min(1e-12).pow(p)",
    "acos": "x.acos() -> x.clamp(-1 + 1e-6, 1 - 1e-6).acos()",
}


def _operation_remedies(look: Look) -> list[Remedy]:
    culprit = look.case.proofs.culprit
    operation, fix = text(culprit, "operation"), text(culprit, "fix")
    if not fix:
        said = "Change the model where the experiments point."
        return [Remedy(FIX, said, "the factor that made it go away, section 3", _operation_sentence(look))]
    place = text(culprit, "where") or text(culprit, "module") or "the loss function"
    stable = _STABLE.get(operation.removeprefix("_").rstrip("_"), operation)
    why = f"{operation} made the first {text(culprit, 'value')}"
    return [Remedy(FIX, fix, f"{place}: {stable}", why)]


def _operation_lesson(look: Look) -> str:
    culprit = look.case.proofs.culprit
    named = f"`{text(culprit, 'operation')}`" if text(culprit, "operation") else "an operation"
    where = text(culprit, "where") or text(culprit, "module") or "the model"
    what = "was given numbers for which it has no finite answer or gradient"
    return f"In {where}, {named} {what}; guard it, or use a stable form."


OPERATION = Cause(
    "model-numerics",
    "Numerics of the model or the loss",
    "an operation has no finite answer for what it was given (log of zero, 0/0, a row that is masked whole)",
    4,
    _weigh_operation,
    _operation_sentence,
    _operation_remedies,
    _operation_lesson,
)


def _weigh_update(look: Look) -> list[Sign]:
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


def _update_sentence(look: Look) -> str:
    said = f": {look.seen['violent'].text}" if "violent" in look.seen else ""
    return f"A destructive update wrote a non-finite value into a parameter{said}."


UPDATE = Cause(
    "destructive-update",
    "A destructive update",
    "a destructive update wrote a non-finite value into a parameter, which propagates to every later step",
    5,
    _weigh_update,
    _update_sentence,
    lambda _look: [],
    lambda _look: (
        "One non-finite update destroys every later step; check that gradients are finite before the optimizer steps."
    ),
    applies=lambda look: look.case.moment.non_finite,
    mechanism=True,
)
