"""Sees calls of torch's `clip_grad_norm_`, however the user imported it.

`clip_grad_norm_` finds two helpers in its own module at call time; those are wrapped, so a name imported
long before still leads here. This only saves work: the call shows the pre-clip norm, the threshold and the
parameters, so no norm has to be computed a second time. If it shows nothing (another torch, clipping by
hand), `gradients.py` compares the norm when backward ends with the norm when the optimizer steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from steadyrun.program.torch_compat import CLIP_WITH_NORM, TOTAL_NORM, Wrapping


@dataclass(frozen=True)
class ClipCall:
    """One call of `clip_grad_norm_`: on what, to what, and the norm before."""

    parameters: list[Tensor]
    max_norm: float
    total_norm: Tensor
    norm_type: float


Observer = Callable[[ClipCall], None]

_observers: dict[Observer, list[Wrapping]] = {}


def observe(observer: Observer) -> None:
    """Call `observer` after every clipping, until `forget`."""
    forget(observer)
    if TOTAL_NORM.exists and CLIP_WITH_NORM.exists:
        calls = _ClipCalls(observer)
        _observers[observer] = [TOTAL_NORM.wrap(calls.norm), CLIP_WITH_NORM.wrap(calls.clip)]


def forget(observer: Observer) -> None:
    """Undo `observe`; after the last one torch is as it was."""
    for wrapping in _observers.pop(observer, []):
        wrapping.remove()


class _ClipCalls:
    """The two calls that make a clipping, for one observer."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._norm_type = 2.0

    def norm(
        self, call: Callable[..., object], tensors: object, norm_type: float = 2.0, *rest: object, **options: object
    ) -> object:
        self._norm_type = norm_type
        return call(tensors, norm_type, *rest, **options)

    def clip(
        self,
        call: Callable[..., object],
        parameters: object,
        max_norm: float,
        total_norm: Tensor,
        *rest: object,
        **options: object,
    ) -> object:
        result = call(parameters, max_norm, total_norm, *rest, **options)
        if isinstance(parameters, list) and isinstance(max_norm, float | int):
            self._observer(ClipCall(parameters, float(max_norm), total_norm, float(self._norm_type)))
        return result
