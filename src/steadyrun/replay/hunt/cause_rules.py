"""Rules from an operation's name and the ranges of its inputs to a cause."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from steadyrun.replay.hunt.culprit import Range

_LARGEST = {"float16": 65504.0, "bfloat16": 3.39e38, "float32": 3.4e38, "float64": 1.8e308}
_SOFTMAX = ("softmax", "logsumexp", "logcumsumexp", "scaled_dot_product", "attention", "softmin", "logaddexp")


@dataclass(frozen=True)
class OperationEvidence:
    """The evidence at the operation that produced a non-finite value.

    `operation` is what torch ran; `derived` is the forward operation being differentiated, or empty. `spoiled`: its
    forward result was not finite. `masked`: its inputs hold intended infinities. `updating`: an optimizer was running.
    """

    operation: str
    value: str
    dtype: str
    inputs: tuple[Range, ...]
    derived: str = ""
    custom: bool = False
    spoiled: bool = False
    masked: bool = False
    updating: bool = False

    def input(self, *names: str) -> Range | None:
        return next((operand for operand in self.inputs if operand.name in names), None)

    @property
    def first(self) -> Range | None:
        return self.inputs[0] if self.inputs else None


def cause_of(evidence: OperationEvidence) -> str:
    """The slug of the cause, one of `fixes.CAUSES`."""
    if evidence.masked:
        return _from_mask(evidence)
    if evidence.updating:
        return _in_update(evidence)
    if evidence.derived and not evidence.custom:
        return _in_backward(evidence)
    return _in_forward(evidence)


def softmax_like(*operations: str) -> bool:
    """Whether an operation normalises rows, so that minus infinity in a part of a row is allowed."""
    return any(part in operation for operation in operations for part in _SOFTMAX)


def overflow(dtype: str) -> str:
    """The cause of an overflow, by dtype."""
    return {"float16": "fp16-overflow", "bfloat16": "bf16-overflow"}.get(dtype, "float32-overflow")


def _from_mask(evidence: OperationEvidence) -> str:
    if softmax_like(evidence.operation, evidence.derived):
        return "fully-masked-row"
    if evidence.operation in ("mul", "div", "mm", "bmm", "addmm", "baddbmm", "addcmul", "xlogy", "lerp"):
        return "zero-times-infinity"
    return "inf-minus-inf"


def _in_update(evidence: OperationEvidence) -> str:
    if _given_infinity(evidence):
        return "non-finite-rate"
    if evidence.operation.startswith("_fused_"):
        return "optimizer-epsilon" if _fused_epsilon(evidence) else overflow(evidence.dtype)
    cause = _in_forward(evidence)
    return "optimizer-epsilon" if cause == "division-by-zero" else cause


def _fused_epsilon(evidence: OperationEvidence) -> bool:
    second, eps = evidence.input("exp_avg_sqs", "state_sums"), evidence.input("eps")
    return second is not None and second.zeros > 0 and eps is not None and vanishes(eps.low or 0.0, second.dtype)


def vanishes(number: float, dtype: str) -> bool:
    """Whether a number becomes zero in a dtype."""
    return abs(number) < {"float16": 3e-8, "bfloat16": 9.2e-41, "float32": 1.4e-45}.get(dtype, 5e-324)


def _in_backward(evidence: OperationEvidence) -> str:
    if evidence.spoiled:
        return "hidden-branch"
    if evidence.derived == "embedding":
        return "infinite-embedding-gradient"
    cause = _in_forward(evidence)
    if cause in ("division-by-zero", "log-of-zero", "out-of-domain", "non-finite-number"):
        return "variance-of-one" if evidence.derived in ("var", "std", "var_mean", "std_mean") else "gradient-at-zero"
    return cause


def _in_forward(evidence: OperationEvidence) -> str:
    if evidence.value == "nan" and evidence.operation != "mul" and _given_infinity(evidence):
        return "non-finite-number"
    if evidence.value == "nan" and any(operand.empty for operand in evidence.inputs):
        return "mean-of-nothing"
    rule = _RULES.get(evidence.operation.removeprefix("special_"))
    cause = rule(evidence) if rule is not None else ""
    if cause or _multiplied_infinity(evidence):
        return cause or "zero-times-infinity"
    return overflow(evidence.dtype) if evidence.value != "nan" or _large(evidence) else "unknown"


def _large(evidence: OperationEvidence) -> bool:
    """Whether sums of products of the inputs may overflow the dtype: then a NaN counts as an overflow."""
    limit = math.sqrt(_LARGEST.get(evidence.dtype, math.inf)) / 100
    return any(
        _above(operand, limit) or _below(operand, -limit) for operand in evidence.inputs if operand.dtype != "number"
    )


def _given_infinity(evidence: OperationEvidence) -> bool:
    return any(operand.dtype == "number" and operand.nonfinite > 0 for operand in evidence.inputs)


def _multiplied_infinity(evidence: OperationEvidence) -> bool:
    return evidence.value == "nan" and evidence.operation == "mul" and _given_infinity(evidence)


def _has_zero(operand: Range | None) -> bool:
    return operand is not None and operand.zeros > 0


def _below(operand: Range | None, limit: float) -> bool:
    return operand is not None and operand.low is not None and operand.low < limit


def _above(operand: Range | None, limit: float) -> bool:
    return operand is not None and operand.high is not None and operand.high > limit


def _log(shift: float) -> Callable[[OperationEvidence], str]:
    def rule(evidence: OperationEvidence) -> str:
        return "log-of-negative" if evidence.value == "nan" and _below(evidence.first, -shift) else "log-of-zero"

    return rule


def _logit(evidence: OperationEvidence) -> str:
    return _domain(0.0, 1.0)(evidence) or "log-of-zero"


def _xlogy(evidence: OperationEvidence) -> str:
    return "log-of-negative" if _below(evidence.input("other"), 0.0) else "log-of-zero"


def _root(evidence: OperationEvidence) -> str:
    return "sqrt-of-negative" if evidence.value == "nan" and _below(evidence.first, 0.0) else ""


def _rsqrt(evidence: OperationEvidence) -> str:
    return _root(evidence) or ("division-by-zero" if _has_zero(evidence.first) else "")


def _divisor(*names: str) -> Callable[[OperationEvidence], str]:
    return lambda evidence: "division-by-zero" if _has_zero(evidence.input(*names)) else ""


def _power(evidence: OperationEvidence) -> str:
    base, exponent = evidence.input("self"), evidence.input("exponent")
    if _has_zero(base) and _below(exponent, 0.0):
        return "division-by-zero"
    return "sqrt-of-negative" if evidence.value == "nan" and _below(base, 0.0) else ""


def _domain(low: float, high: float) -> Callable[[OperationEvidence], str]:
    def rule(evidence: OperationEvidence) -> str:
        return "out-of-domain" if _below(evidence.first, low) or _above(evidence.first, high) else ""

    return rule


def _always(cause: str) -> Callable[[OperationEvidence], str]:
    return lambda _: cause


def _variance(evidence: OperationEvidence) -> str:
    values = evidence.first
    large = math.sqrt(_LARGEST.get(evidence.dtype, math.inf)) / 2
    return "" if _above(values, large) or _below(values, -large) else "variance-of-one"


def _normalisation(evidence: OperationEvidence) -> str:
    eps, variance = evidence.input("eps"), evidence.input("running_var")
    if _below(variance, 0.0):
        return "sqrt-of-negative"
    return "division-by-zero" if eps is not None and vanishes(eps.low or 0.0, "float32") else ""


_RULES: dict[str, Callable[[OperationEvidence], str]] = {
    **dict.fromkeys(("log", "log2", "log10"), _log(0.0)),
    "log1p": _log(1.0),
    "logit": _logit,
    **dict.fromkeys(("xlogy", "xlog1py"), _xlogy),
    "sqrt": _root,
    "rsqrt": _rsqrt,
    **dict.fromkeys(
        ("div", "true_divide", "floor_divide", "remainder", "fmod"), _divisor("other", "scalar", "scalars")
    ),
    "addcdiv": _divisor("tensor2"),
    "reciprocal": _divisor("self"),
    "_weight_norm_interface": _divisor("v"),
    "pow": _power,
    "float_power": _power,
    **dict.fromkeys(("exp", "exp2", "expm1", "cosh", "sinh"), _always("exp-overflow")),
    **dict.fromkeys(("acos", "asin", "atanh", "erfinv"), _domain(math.nextafter(-1, 0), math.nextafter(1, 0))),
    "acosh": _domain(1.0, math.inf),
    **dict.fromkeys(("lgamma", "digamma", "polygamma", "ndtri"), _always("out-of-domain")),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward", "median", "nanmedian"), _always("mean-of-nothing")),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), _variance),
    **dict.fromkeys(
        [
            "native_layer_norm",
            "native_group_norm",
            "native_batch_norm",
            "_native_batch_norm_legit",
            "cudnn_batch_norm",
            "_fused_rms_norm",
            "_batch_norm_with_update",
            "_native_batch_norm_legit_no_training",
        ],
        _normalisation,
    ),
    **dict.fromkeys(("_ctc_loss", "_cudnn_ctc_loss"), _always("ctc-no-path")),
}
