"""Which positions of the model's input are padding, and whether the loss counts them: the gradient shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from steadyrun.program.containers import leaves

_ROWS_AND_POSITIONS = 2


@dataclass(frozen=True)
class Padding:
    """The padded positions of one forward pass; `declared` if the program names the token that pads."""

    mask: Tensor  # rows x positions
    declared: bool
    shape: tuple[int, ...]  # of the input


def padding_token(model: nn.Module, declared: int | None) -> int | None:
    """The token that pads: declared, or else what an embedding of the model calls so."""
    if declared is not None:
        return declared
    tables = (module.padding_idx for module in model.modules() if isinstance(module, nn.Embedding))
    return next((index for index in tables if index is not None), None)


def padding_of(inputs: object, pad_id: int | None) -> Padding | None:
    """The padding at the end of each row: the token that pads, or steps of a series that are all zeros.

    None if several inputs could be the sequence, as the two sides of a translation.
    """
    tensors = [leaf for leaf in leaves(inputs, 3) if isinstance(leaf, Tensor) and leaf.layout == torch.strided]
    rows = [tensor for tensor in tensors if tensor.dim() == _ROWS_AND_POSITIONS and tensor.dtype == torch.int64]
    series = [tensor for tensor in tensors if tensor.dim() == 3 and tensor.is_floating_point()]
    if len(rows) + len(series) != 1:
        return None
    with torch.no_grad():
        if series:
            return Padding(_at_the_end((series[0] == 0).all(-1)), False, tuple(series[0].shape))
        if pad_id is None:
            return None
        ended = _at_the_end(rows[0] == pad_id)
        # The first of them may be a token of its own: the end of the text.
        return Padding(ended & ended.roll(1, 1), True, tuple(rows[0].shape))


def _at_the_end(padded: Tensor) -> Tensor:
    """Positions from which on a row is nothing but padding; a row without anything else has none."""
    ends = padded.flip(1).long().cumprod(1).flip(1).bool()
    return ends & ~ends[:, :1]


def when_differentiated(output: Tensor, padding: Padding, take: Callable[[Tensor], None]) -> None:
    """Hand over the fraction of the counted positions that are padding, once the gradient of `output` is known."""
    sides, positions = tuple(padding.mask.shape), tuple(output.shape[:_ROWS_AND_POSITIONS])
    same = tuple(output.shape) == padding.shape  # a series that is put together again: its zeros may be meant
    if not output.requires_grad or positions != sides or same or (padding.declared and output.dim() != 3):
        return

    def note(gradient: Tensor) -> None:
        try:
            # The largest size, not `ne(0).any(-1)`: that needs as much memory as the scores.
            counted = torch.linalg.vector_norm(gradient.detach().reshape(*positions, -1), torch.inf, -1) != 0
            take((counted & padding.mask).sum() / counted.sum().clamp(min=1))
        except Exception:  # nothing that goes wrong here may reach the backward pass: the number is missing
            return

    output.register_hook(note)  # type: ignore[no-untyped-call]
