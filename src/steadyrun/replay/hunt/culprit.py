"""What a hunt hands back: where the first guilty number came from, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
