"""What a hunt hands back: where the first guilty number came from, its cause, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# The causes that a hunt can name: what each means and what to do. The one table of them.


@dataclass(frozen=True)
class NumericCause:
    """`meaning` finishes a sentence that begins with the operation. `overflow` says that fp32 may cure it."""

    meaning: str
    fix: str
    overflow: bool = False


CAUSES: dict[str, NumericCause] = {
    "log-of-zero": NumericCause(
        "took the logarithm of zero",
        "Compute it in log space (log_softmax, logsigmoid, logsumexp, the ...with_logits losses), or clamp the input "
        "from below before the log.",
    ),
    "log-of-negative": NumericCause(
        "took the logarithm of a negative number",
        "Find out why the input is negative; a probability or variance that may round below zero is clamped before "
        "the log.",
    ),
    "sqrt-of-negative": NumericCause(
        "took a root or a fractional power of a negative number",
        "Find out why the input is negative; a difference that may round below zero (E[x²] - E[x]²) is clamped at zero "
        "before the root.",
    ),
    "out-of-domain": NumericCause(
        "was called outside of the numbers for which it is defined",
        "Clamp the input into the domain, a little inside of its ends (acos and asin: -1 + 1e-6 to 1 - 1e-6).",
    ),
    "division-by-zero": NumericCause(
        "divided by zero",
        "Keep the divisor away from zero: clamp it, add an epsilon that the dtype can hold, or leave out the rows "
        "where it is zero before dividing.",
    ),
    "fp16-overflow": NumericCause(
        "went past 65504, the largest float16 number",
        "Run this part in float32 or bfloat16 (autocast off around it), or scale its input down.",
        overflow=True,
    ),
    "bf16-overflow": NumericCause(
        "went past the largest bfloat16 number, about 3.4e38",
        "bfloat16 reaches as far as float32, so the numbers have exploded: look at the learning rate, at the "
        "initialisation and at normalisation before this module.",
        overflow=True,
    ),
    "float32-overflow": NumericCause(
        "went past the largest number of its dtype",
        "The numbers have exploded: look at the learning rate, at the initialisation and at normalisation before this "
        "module; rescale before squares, powers and products.",
        overflow=True,
    ),
    "exp-overflow": NumericCause(
        "took the exponential of a number that is too large",
        "Subtract the maximum before exp, or use softmax, logsumexp, softplus, logsigmoid, which do it; or clamp the "
        "input.",
        overflow=True,
    ),
    "fully-masked-row": NumericCause(
        "met a row in which every score is masked with minus infinity",
        "Make sure that every row keeps one position (padding rows too), or set such rows to zero afterwards with "
        "masked_fill before they are used.",
    ),
    "zero-times-infinity": NumericCause(
        "multiplied zero by infinity",
        "Use masked_fill or torch.where in place of a multiplication with infinite numbers.",
    ),
    "inf-minus-inf": NumericCause(
        "subtracted infinity from infinity",
        "Use a large finite number in place of infinity here, or treat the infinite entries apart. A row that is "
        "masked as a whole does this, too, where its maximum is subtracted.",
    ),
    "escaped-infinity": NumericCause(
        "put in an infinity that reached the loss or a gradient",
        "Check that no target points to a masked entry, and that masked entries leave the computation before the loss.",
    ),
    "mean-of-nothing": NumericCause(
        "took the mean of no elements",
        "Skip an empty selection, or divide the sum by the count clamped to at least one; look at why the batch has "
        "nothing to count (all targets ignored, an empty mask).",
    ),
    "variance-of-one": NumericCause(
        "took the variance of a single value",
        "Use correction=0 (unbiased=False), or skip groups of one element; look at the size of the last batch.",
    ),
    "gradient-at-zero": NumericCause(
        "is infinite at such inputs",
        "Add a small epsilon inside (sqrt(x + eps)), clamp a little inside of the domain (acos, asin), or keep such "
        "inputs out with torch.where before the operation.",
    ),
    "hidden-branch": NumericCause(
        "gave a non-finite value in the forward pass; it was hidden from the loss (torch.where, a mask, a later "
        "operation), and its derivative was not",
        "Make the input safe before the operation: x = torch.where(valid, x, 1.0), then the operation, then the "
        "second torch.where.",
    ),
    "infinite-embedding-gradient": NumericCause(
        "summed the gradients of one row to infinity",
        "One token takes very many gradients in a small dtype: keep the embedding in float32, lower the loss scale, or "
        "take the mean in place of the sum.",
        overflow=True,
    ),
    "optimizer-epsilon": NumericCause(
        "divided by a second moment of zero: the optimizer's eps is zero, or zero in this dtype",
        "Set an eps that the dtype can hold (1e-8 is zero in float16: 1e-4 and more is safe), or keep parameters and "
        "moments in float32.",
    ),
    "non-finite-number": NumericCause(
        "was given a number that is not finite",
        "Look at where the program takes this number from.",
    ),
    "non-finite-rate": NumericCause(
        "was given a number that is not finite, such as a learning rate or a weight decay",
        "Look at the schedule and at the optimizer's settings at this step.",
    ),
    "non-finite-input": NumericCause(
        "held a non-finite number before the step began",
        "Clean or drop such examples when the data is read.",
    ),
    "non-finite-state": NumericCause(
        "was not finite before the step began",
        "The fault lies in an earlier step or in the checkpoint: hunt the step that first made it non-finite.",
    ),
    "uninitialised-memory": NumericCause(
        "was made without values (torch.empty) and read before anything that torch can see had filled it",
        "Use torch.zeros, or look at the custom kernel that is meant to fill it.",
    ),
    "ctc-no-path": NumericCause(
        "found no alignment: a target is longer than its input allows",
        "Pass zero_infinity=True, or drop examples whose target is longer than their input.",
    ),
    "unknown": NumericCause(
        "gave a non-finite number",
        "Look at the range of the inputs; a run of this step in float32 tells whether it is an overflow.",
    ),
}


# What a hunt hands back: where the first guilty number came from, and what to do about it.


Stage = Literal["data", "state", "forward", "loss", "backward", "update"]


@dataclass(frozen=True)
class Range:
    """One input of an operation: its range over finite values, and the shares that are zero or not finite.

    A number that was passed as such, as in `x / 0.0`, has the dtype "number" and no shape.
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
    """One example of a batch, and what the batch itself tells of it. `row` is its index in the (micro-)batch."""

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
    model itself (`stage` and `module_type` tell which). In the stages "data", "state" and "update" it is the name of
    the batch entry or the parameter. `parameter` is the first parameter whose gradient or value is not finite, where
    one is. `operation` is what torch ran there; in backward it is the forward operation that was differentiated.
    `where` is the line of the program that called it, as far as that can be told. `examples` are those of the batch
    that were not finite, in the stage "data".
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
