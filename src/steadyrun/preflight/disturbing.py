"""Changes to what a model is given, to see what it makes of them: nothing, other rows, other tokens later on."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
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


def opaque(held: Any) -> bool:
    """Whether there is something in it that an edit cannot look into."""
    if isinstance(held, dict):
        return any(map(opaque, held.values()))
    if type(held) in (list, tuple):
        return any(map(opaque, held))
    return held is not None and not isinstance(held, Tensor | bool | int | float | str | torch.device | torch.dtype)


def fewer_rows(batch: Any, rows: int) -> Any:
    """The batch without its last example: every tensor and array of so many rows loses one."""
    if isinstance(batch, Tensor | np.ndarray):
        return batch[:-1] if batch.ndim and batch.shape[0] == rows else batch
    if isinstance(batch, dict):
        return type(batch)({key: fewer_rows(held, rows) for key, held in batch.items()})
    if type(batch) in (list, tuple):
        return type(batch)(fewer_rows(held, rows) for held in batch)
    if is_dataclass(batch) and not isinstance(batch, type):
        parts = {each.name: getattr(batch, each.name) for each in fields(batch) if each.init}
        return replace(batch, **fewer_rows(parts, rows))
    return batch
