"""What a live adapter needs: a recorder in place of steadyrun's, and the loss at the moment of the optimizer's step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import torch


class Hooked:
    """Called like `steadyrun.record`; tells a tool of every step when the optimizer makes it.

    The loss is taken from `backward`, because some tools want it before the step; that of an accumulated step is the
    sum of its parts, which the loop has divided.
    """

    def __init__(self, _folder: Path, config: dict[str, Any] | None = None, **_: Any) -> None:
        self.config, self.loss, self._handles = config or {}, 0.0, []
        self.scaler: Any = None
        self._backward: Callable[..., None] = torch.Tensor.backward

    def __enter__(self) -> Hooked:
        original, hooked = self._backward, self

        def backward(loss: torch.Tensor, *arguments: Any, **settings: Any) -> None:
            scale = 1.0 if hooked.scaler is None else max(hooked.scaler.get_scale(), 1e-30)
            hooked.loss += float(loss.detach()) / scale
            original(loss, *arguments, **settings)

        torch.Tensor.backward = backward  # type: ignore[method-assign]
        return self

    def __exit__(self, kind: type | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        torch.Tensor.backward = self._backward  # type: ignore[method-assign]
        for handle in self._handles:
            handle.remove()
        self.finish()

    def watch(self, model: Any, optimizer: Any, *, scaler: Any = None, **_: Any) -> None:
        self.scaler = scaler
        first = optimizer[0] if isinstance(optimizer, list | tuple) else optimizer
        self._handles.append(first.register_step_pre_hook(lambda *_: self.before_step()))
        self._handles.append(first.register_step_post_hook(lambda *_: self.after_step()))
        self.start(model, first)

    def step(self, _loss: Any, **_: Any) -> None:
        self.loss = 0.0

    def val(self, *_: Any, **__: Any) -> None:
        pass

    def start(self, model: Any, optimizer: Any) -> None: ...

    def before_step(self) -> None: ...

    def after_step(self) -> None: ...

    def finish(self) -> None: ...
