"""Sees the number on which `backward()` is called: what is differentiated need not be what is reported.

`Tensor.backward` finds `torch.autograd.backward` in its module at call time; that is wrapped, as clipping is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Observer = Callable[[Tensor | None], None]

_observers: list[Observer] = []
_original: Any = None


def observe(observer: Observer) -> None:
    """Call `observer` before every backward pass with the scalar it starts from, graph and all; None if it is none."""
    global _original
    if not _observers:
        _original = torch.autograd.backward
        torch.autograd.backward = _seen
    _observers.append(observer)


def forget(observer: Observer) -> None:
    """Undo `observe`; after the last one torch is as it was."""
    if observer in _observers:
        _observers.remove(observer)
        if not _observers and torch.autograd.backward is _seen:
            torch.autograd.backward = _original


def _seen(tensors: Any, grad_tensors: Any = None, *rest: Any, **options: Any) -> Any:
    if not torch.compiler.is_compiling():
        root = _scalar(tensors) if grad_tensors is None else None
        for observer in _observers:
            observer(root)
    return _original(tensors, grad_tensors, *rest, **options)


def _scalar(tensors: Any) -> Tensor | None:
    if isinstance(tensors, list | tuple) and len(tensors) == 1:
        tensors = tensors[0]
    return tensors if isinstance(tensors, Tensor) and tensors.numel() == 1 else None
