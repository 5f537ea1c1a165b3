"""Sees calls of torch's `clip_grad_norm_`, however the user imported it.

`clip_grad_norm_` finds two helpers in its own module at call time; those are wrapped, so a name imported
long before still leads here. This only saves work: the call tells the pre-clip norm, the threshold and the
parameters, so no norm has to be computed a second time. Where it tells nothing (another torch, clipping by
hand), `gradients.py` compares the norm when backward ends with the norm when the optimizer steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad as _module

_NORM, _CLIP = "_get_total_norm", "_clip_grads_with_norm_"


@dataclass(frozen=True)
class ClipCall:
    """One call of `clip_grad_norm_`: on what, to what, and the norm before."""

    parameters: list[Tensor]
    max_norm: float
    total_norm: Tensor
    norm_type: float


Observer = Callable[[ClipCall], None]

_observers: list[Observer] = []
_originals: dict[str, Any] = {}
_last_norm_type = 2.0


def observe(observer: Observer) -> None:
    """Call `observer` after every clipping, until `forget`."""
    if not _observers and hasattr(_module, _NORM) and hasattr(_module, _CLIP):
        _originals.update({name: getattr(_module, name) for name in (_NORM, _CLIP)})
        setattr(_module, _NORM, _norm_seen)
        setattr(_module, _CLIP, _clip_seen)
    _observers.append(observer)


def forget(observer: Observer) -> None:
    """Undo `observe`; after the last one torch is as it was."""
    if observer in _observers:
        _observers.remove(observer)
    if not _observers:
        for name, original in _originals.items():
            setattr(_module, name, original)
        _originals.clear()


def _norm_seen(tensors: Any, norm_type: float = 2.0, *rest: Any, **options: Any) -> Any:
    global _last_norm_type
    if not torch.compiler.is_compiling():
        _last_norm_type = norm_type
    return _original(_NORM)(tensors, norm_type, *rest, **options)


def _clip_seen(parameters: Any, max_norm: float, total_norm: Tensor, *rest: Any, **options: Any) -> Any:
    result = _original(_CLIP)(parameters, max_norm, total_norm, *rest, **options)
    if not torch.compiler.is_compiling() and isinstance(parameters, list) and isinstance(max_norm, float | int):
        call = ClipCall(parameters, float(max_norm), total_norm, float(_last_norm_type))
        for observer in _observers:
            observer(call)
    return result


def _original(name: str) -> Any:
    """The wrapped function; the module's own again once the last observer has gone."""
    return _originals.get(name) or getattr(_module, name)
