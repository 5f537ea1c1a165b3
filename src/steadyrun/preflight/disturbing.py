"""Changes to what a model is given, to see what it makes of them: nothing, other rows, other tokens later on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from steadyrun.preflight.editing import changed, editing


def later_tokens(tokens: Tensor, half: int) -> Any:
    """An edit: other tokens from a place on."""

    def change(held: Tensor) -> Tensor | None:
        if held.shape != tokens.shape or not torch.equal(held.to(tokens.device), tokens):
            return None
        other = held.clone()
        later = other[:, half:]
        other[:, half:] = torch.where(later == later.amax(), later.amin(), later.amax())
        return other

    return editing(change)


def rolled(held: Tensor) -> Tensor:
    """The rows one place further."""
    return held.roll(1, 0) if held.dim() and held.shape[0] > 1 else held


def rolled_inputs(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """An edit: rows one place further in what is no label; labels that a model is given stay where they are."""
    named = {key: held if "label" in key or "target" in key else changed(held, rolled) for key, held in kwargs.items()}
    return changed(args, rolled), named


def emptied(held: Tensor) -> Tensor:
    """Numbers become zero; rows of whole numbers are read from another place on."""
    if held.is_floating_point():
        return torch.zeros_like(held)
    if held.dtype == torch.bool or held.dim() < 2:
        return rolled(held)
    return held.roll(1, 1)
