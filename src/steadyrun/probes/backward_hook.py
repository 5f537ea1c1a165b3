"""Sees the number on which `backward()` is called: what is differentiated need not be what is reported.

`Tensor.backward` finds `torch.autograd.backward` in its module at call time; that is wrapped, as clipping is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from steadyrun.program.torch_compat import BACKWARD, Wrapping

Observer = Callable[[Tensor | None], None]

_observers: dict[Observer, Wrapping] = {}


def observe(observer: Observer) -> None:
    """Call `observer` before every backward pass with the scalar it starts from, graph and all; None if it is none."""
    forget(observer)
    _observers[observer] = BACKWARD.wrap(partial(_announce, observer))


def forget(observer: Observer) -> None:
    """Undo `observe`; after the last one torch is as it was."""
    if observer in _observers:
        _observers.pop(observer).remove()


def _announce(
    observer: Observer,
    call: Callable[..., object],
    tensors: object,
    grad_tensors: object = None,
    *rest: object,
    **options: object,
) -> object:
    observer(_scalar(tensors) if grad_tensors is None else None)
    return call(tensors, grad_tensors, *rest, **options)


def _scalar(tensors: object) -> Tensor | None:
    if isinstance(tensors, list | tuple) and len(tensors) == 1:
        tensors = tensors[0]
    return tensors if isinstance(tensors, Tensor) and tensors.numel() == 1 else None
