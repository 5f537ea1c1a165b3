"""The result of a hunt: the origin of the first harmful value, its cause and its fix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# The causes that a hunt can name, with their meanings and fixes.


@dataclass(frozen=True)
class NumericCause:
    """`meaning` completes a sentence that begins with the operation. `overflow`: float32 may fix it."""

    meaning: str
    fix: str
    overflow: bool = False


CAUSES: dict[str, NumericCause] = {
    "log-of-zero": NumericCause(
        "took the logarithm of zero",
        "Compute it in log space (log_softmax, logsigmoid, logsumexp, the ...with_logits losses), or clamp the input: "
        "x.clamp_min(eps).log().",
    ),
    "log-of-negative": NumericCause(
        "took the logarithm of a negative number",
        "Find out why the input is negative. Clamp a probability or variance that may round below zero before the log.",
    ),
    "sqrt-of-negative": NumericCause(
        "took a root or a fractional power of a negative number",
        "Find out why the input is negative. Clamp a difference that may round below zero (E[x²] - E[x]²) at zero "
        "before the root.",
    ),
    "out-of-domain": NumericCause(
        "got an input outside its domain",
        "Clamp the input to slightly inside the domain (acos and asin: -1 + 1e-6 to 1 - 1e-6).",
    ),
    "division-by-zero": NumericCause(
        "divided by zero",
        "Keep the divisor away from zero: clamp it, add an epsilon that the dtype can represent, or drop the rows with "
        "a zero divisor.",
    ),
    "fp16-overflow": NumericCause(
        "exceeded 65504, the largest float16 value",
        "Run this part in float32 or bfloat16 (turn autocast off around it), or scale its input down.",
        overflow=True,
    ),
    "bf16-overflow": NumericCause(
        "exceeded the largest bfloat16 value, about 3.4e38",
        "bfloat16 has the range of float32, so the values exploded: check the learning rate, the initialisation and "
        "the normalisation before this module.",
        overflow=True,
    ),
    "float32-overflow": NumericCause(
        "exceeded the largest value of its dtype",
        "The values exploded: check the learning rate, the initialisation and the normalisation before this module; "
        "rescale before squares, powers and products.",
        overflow=True,
    ),
    "exp-overflow": NumericCause(
        "took the exponential of a value that is too large",
        "Subtract the maximum before exp, use softmax, logsumexp, softplus or logsigmoid (which do that), or clamp the "
        "input.",
        overflow=True,
    ),
    "fully-masked-row": NumericCause(
        "got a row in which every score is masked with minus infinity",
        "Leave at least one position of every row unmasked, also of padding rows, or set such rows to zero with "
        "masked_fill before using them.",
    ),
    "zero-times-infinity": NumericCause(
        "multiplied zero by infinity",
        "Use masked_fill or torch.where instead of multiplying by infinite values.",
    ),
    "inf-minus-inf": NumericCause(
        "subtracted infinity from infinity",
        "Use a large finite value instead of infinity here, or handle the infinite entries separately. A fully masked "
        "row also does this when its maximum is subtracted.",
    ),
    "escaped-infinity": NumericCause(
        "inserted an infinity that reached the loss or a gradient",
        "Check that no target points to a masked entry, and that masked entries are excluded before the loss.",
    ),
    "mean-of-nothing": NumericCause(
        "took the mean of zero elements",
        "Skip an empty selection, or divide the sum by the count clamped to at least 1. Find out why the batch has "
        "nothing to average (all targets ignored, an empty mask).",
    ),
    "variance-of-one": NumericCause(
        "took the variance of a single value",
        "Use correction=0 (unbiased=False), or skip groups of one element. Check the size of the last batch.",
    ),
    "gradient-at-zero": NumericCause(
        "is infinite at such inputs",
        "Add a small epsilon inside (sqrt(x + eps)), clamp to slightly inside the domain (acos, asin), or replace such "
        "inputs with torch.where before the operation.",
    ),
    "hidden-branch": NumericCause(
        "produced a non-finite value in the forward pass; torch.where, a mask or a later operation hid it from the "
        "loss, "
        "but not from the gradient",
        "Make the input safe before the operation: x = torch.where(valid, x, 1.0), then the operation, then the "
        "second torch.where.",
    ),
    "infinite-embedding-gradient": NumericCause(
        "summed the gradients of one row to infinity",
        "One token accumulates very many gradients in a narrow dtype: keep the embedding in float32, lower the loss "
        "scale, or use the mean instead of the sum.",
        overflow=True,
    ),
    "optimizer-epsilon": NumericCause(
        "divided by a second moment of zero: the optimizer's eps is zero, or zero in this dtype",
        "Set an eps that the dtype can represent (1e-8 is zero in float16; 1e-4 or more is safe), or keep parameters "
        "and moments in float32.",
    ),
    "non-finite-number": NumericCause(
        "got a non-finite number",
        "Find out how the program computes this number.",
    ),
    "non-finite-rate": NumericCause(
        "got a non-finite number, such as a learning rate or a weight decay",
        "Check the schedule and the optimizer's settings at this step.",
    ),
    "non-finite-input": NumericCause(
        "contained a non-finite value before the step began",
        "Repair or drop such examples when you load the data.",
    ),
    "non-finite-state": NumericCause(
        "was not finite before the step began",
        "The cause is in an earlier step or in the checkpoint: replay the step that first made it non-finite.",
    ),
    "uninitialised-memory": NumericCause(
        "was created without values (torch.empty) and read before torch saw it filled",
        "Use torch.zeros, or check the custom kernel that should fill it.",
    ),
    "ctc-no-path": NumericCause(
        "found no alignment: a target is longer than its input allows",
        "Pass zero_infinity=True, or drop examples whose target is longer than their input.",
    ),
    "unknown": NumericCause(
        "produced a non-finite value",
        "Check the range of the inputs. Run this step in float32 to see whether it is an overflow.",
    ),
}


# The result of a hunt: the origin of the first harmful value, and its fix.


Stage = Literal["data", "state", "forward", "loss", "backward", "update"]


@dataclass(frozen=True)
class Range:
    """One input of an operation: its range over finite values, and the fractions that are zero or not finite.

    A plain number, as in `x / 0.0`, has the dtype "number" and no shape.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    low: float | None
    high: float | None
    nonfinite: float = 0.0
    zeros: float = 0.0

    @property
    def empty(self) -> bool:
        return 0 in self.shape


@dataclass(frozen=True)
class Example:
    """One example of a batch, with what the batch says about it. `row` is its index in the (micro-)batch."""

    row: int
    dataset_index: int | None = None
    file: str | None = None
    micro_batch: int | None = None

    def __str__(self) -> str:
        index = "" if self.dataset_index is None else f"dataset index {self.dataset_index}"
        known = ", ".join(filter(None, (index, self.file)))
        part = "the batch" if self.micro_batch is None else f"micro-batch {self.micro_batch}"
        return f"row {self.row} of {part}{f' ({known})' if known else ''}"


@dataclass(frozen=True)
class Culprit:
    """The origin of a NaN or infinity that reached the loss, a gradient or a parameter; `asdict` makes it JSON.

    `module` is the path of the innermost module of the model, and empty for the loss function and for the code of the
    model itself (`stage` and `module_type` distinguish them). In the stages "data", "state" and "update" it is the
    name of the batch entry or the parameter. `parameter` is the first parameter with a non-finite gradient or value,
    if there is one. `operation` is what torch ran; in backward it is the forward operation that was differentiated.
    `where` is the line of the program that called it, if known. `examples` are the examples of the batch with
    non-finite values, in the stage "data".
    """

    stage: Stage
    module: str
    module_type: str
    parameter: str
    operation: str
    value: Literal["nan", "inf", "-inf"]
    dtype: str
    inputs: tuple[Range, ...]
    where: str
    cause: str
    message: str
    fix: str
    examples: tuple[Example, ...] = ()
