"""A look at the GradScaler: its scale, and whether gradients are scaled at this moment. Never a wait."""

from __future__ import annotations

import sys
from itertools import islice
from typing import Protocol

from torch import Tensor

from steadyrun.program.frames import callers, variable
from steadyrun.program.torch_compat import scaler_stages

_FRAMES = 12  # above an optimizer's step, in which its scaler is looked for


class ScalerLike(Protocol):
    """What is called on a scaler; the rest is read where it is there."""

    def is_enabled(self) -> bool: ...


class ScalerView:
    """Reads a `torch.amp.GradScaler` without asking the device for anything."""

    def __init__(self, scaler: ScalerLike | None) -> None:
        self.scaler = scaler
        self._searches_left = 5

    @property
    def active(self) -> bool:
        return self.scaler is not None and bool(self.scaler.is_enabled())

    def scale(self) -> Tensor | float | None:
        """The scale in force now; None before its first use or without a scaler."""
        if not self.active:
            return None
        scale = getattr(self.scaler, "_scale", None)
        return scale if isinstance(scale, Tensor) else float(getattr(self.scaler, "_init_scale", 0.0)) or None

    def snapshot(self) -> Tensor | float | None:
        """A copy of the scale: `scaler.update()` changes the tensor in place."""
        scale = self.scale()
        return scale.detach().clone() if isinstance(scale, Tensor) else scale

    def unscaled(self, norm: Tensor | None) -> Tensor | None:
        """A norm of scaled gradients, divided by the scale."""
        scale = self.scale()
        if norm is None or scale is None:
            return norm
        return norm / (scale.to(norm.device, norm.dtype) if isinstance(scale, Tensor) else scale)

    def gradients_are_scaled(self) -> bool:
        """Whether `unscale_` is still to come in this step."""
        if not self.active:
            return False
        states = scaler_stages(self.scaler) or {}
        stages = [getattr(state.get("stage"), "name", "READY") for state in states.values()]
        return not stages or all(stage == "READY" for stage in stages)

    def search(self) -> bool:
        """Called inside an optimizer's step: find the scaler that made the call, if the user did not name one."""
        if self.scaler is not None or self._searches_left == 0:
            return False
        self._searches_left -= 1
        for frame in islice(callers(sys._getframe(1)), _FRAMES):
            caller = variable(frame, "self")
            if scaler_stages(caller) is not None and hasattr(caller, "get_scale"):
                self.scaler = caller
                return True
        return False
