"""The origins of non-finite values, and the memory that they have reached."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count

from torch import Tensor

from steadyrun.replay.hunt.culprit import Range
from steadyrun.replay.hunt.finite_range import Bad, Key, fills_storage, storage_key
from steadyrun.replay.hunt.location import OperationLocation

_clock = count()


@dataclass(eq=False)
class Origin:
    """The operation, or the tensor from before the step, that non-finite values came from.

    `deliberate` marks an infinity that the program inserted, such as a mask: allowed until it makes a NaN or reaches
    the loss. `scaling` marks an overflow in the multiplication with a loss scale, which the scaler handles.
    """

    location: OperationLocation
    cause: str
    bad: Bad
    dtype: str
    inputs: tuple[Range, ...] = ()
    deliberate: bool = False
    scaling: bool = False
    time: int = field(default_factory=_clock.__next__)


@dataclass
class Taint:
    """The origins of the non-finite values in one piece of memory: NaN, infinity, deliberate infinity."""

    nan: Origin | None = None
    inf: Origin | None = None
    mask: Origin | None = None

    def guilty(self, bad: Bad) -> Origin | None:
        """The origin to blame if such values reach a sink."""
        return (self.nan if bad & Bad.NAN else None) or self.inf or self.mask or self.nan


def earliest(origins: Iterable[Origin | None]) -> Origin | None:
    """The earliest origin."""
    return min((origin for origin in origins if origin is not None), key=lambda origin: origin.time, default=None)


class Memory:
    """The origins that taint each piece of memory, and the memory that was never filled.

    Entries are hints, not proofs: memory is freed and reused. Readers also inspect the values. `suspect` is the origin
    of the last NaN or unintended infinity on the way to the loss or in backward.
    """

    def __init__(self) -> None:
        self._taints: dict[Key, Taint] = {}
        self._unfilled: dict[Key, OperationLocation] = {}
        self.suspect: Origin | None = None

    def taint_of(self, tensor: Tensor) -> Taint:
        key = storage_key(tensor)
        return (self._taints.get(key) if key else None) or Taint()

    def taint(self, tensor: Tensor, new: Taint) -> None:
        """Record the origins of a write; the rest of the memory keeps its origins."""
        if (key := storage_key(tensor)) is None:
            return
        old = Taint() if fills_storage(tensor) else self._taints.get(key, Taint())
        self._taints[key] = Taint(new.nan or old.nan, new.inf or old.inf, new.mask or old.mask)

    def clean(self, tensor: Tensor) -> None:
        """Record that finite values were written."""
        key = storage_key(tensor)
        if key is not None and (key in self._taints or key in self._unfilled) and fills_storage(tensor):
            self._taints.pop(key, None)
            self._unfilled.pop(key, None)

    def unfill(self, tensor: Tensor, location: OperationLocation) -> None:
        """Record uninitialised memory."""
        if (key := storage_key(tensor)) is not None:
            self._taints.pop(key, None)
            self._unfilled[key] = location

    def unfilled(self, tensor: Tensor) -> OperationLocation | None:
        key = storage_key(tensor)
        return self._unfilled.get(key) if key else None
