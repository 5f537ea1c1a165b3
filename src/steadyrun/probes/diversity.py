"""How much the rows of a batch differ, and generated rows beside real ones of the same step."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from steadyrun.probes.float_tensors import first_float, thinned

_FEWEST_ROWS, _MOST_ROWS = 4, 64
_MOST_FEATURES = 2**14  # of a row
_MOST_KEPT = 4  # outputs of a step, until it ends


def centred(output: object) -> Tensor | None:
    """The rows of an output without their mean, thinned; None if they are too few or too narrow."""
    rows = first_float(output)
    if rows is None or rows.dim() < 2 or rows.shape[0] < _FEWEST_ROWS or rows[0].numel() < _FEWEST_ROWS:
        return None
    flat = rows.detach()[:_MOST_ROWS].flatten(1)
    flat = flat[:, :: -(-flat.shape[1] // _MOST_FEATURES)].float()
    return flat - flat.mean(0)


def effective_rank(rows: Tensor) -> Tensor:
    """In how many directions centred rows vary: (Σλ)² / Σλ² of their covariance; NaN if all are equal."""
    inner = rows @ rows.T
    return inner.diagonal().sum().square() / inner.square().sum()


def output_rank(output: object) -> Tensor | None:
    """The effective rank of the rows of an output."""
    with torch.no_grad():
        rows = centred(output)
        return None if rows is None else effective_rank(rows)


@dataclass
class Generated:
    """Outputs of one part of a model that another part judges beside real inputs of the same shape."""

    _made: list[tuple[int, Tensor]] = field(default_factory=list)  # by which module; kept so that no memory is reused
    _unseen: tuple[int, Tensor] | None = None  # the last output without gradients
    _real: dict[int, Tensor] = field(default_factory=dict)  # by the module that judges
    _judged: dict[int, Tensor] = field(default_factory=dict)

    def gives(self, part: int, output: object) -> None:
        """Note what a part returns."""
        if (made := first_float(output)) is not None and len(self._made) < _MOST_KEPT:
            self._made.append((part, made.detach()))

    def gives_unseen(self, part: int, output: object) -> None:
        """Note what a module returns without gradients; the outermost module returns last."""
        if (made := first_float(output)) is not None:
            self._unseen = part, made.detach()

    def takes(self, part: int, args: object) -> None:
        """Note what a part is given: an output of another part, or a real batch."""
        given = first_float(args)
        if given is None:
            return
        if self._unseen is not None:
            self._made.append(self._unseen)
            self._unseen = None
        makers = {maker for maker, made in self._made if made.data_ptr() == given.data_ptr()}
        if makers - {part}:
            self._judged[part] = given.detach()
        elif not makers:
            self._real.setdefault(part, given.detach())

    def beside_real(self) -> Tensor | None:
        """Variance and effective rank of generated rows, each over that of real rows, and the real rows' mean and
        standard deviation; None without such a pair.
        """
        for part, generated in self._judged.items():
            real = self._real.get(part)
            if real is None or real.shape[1:] != generated.shape[1:]:
                continue
            pair = [centred(real[: len(generated)]), centred(generated[: len(real)])]
            if pair[0] is not None and pair[1] is not None:
                sizes = [rows.square().sum() for rows in pair if rows is not None]
                ranks = [effective_rank(rows) for rows in pair if rows is not None]
                whole = thinned(real).float()
                return torch.stack([sizes[1] / sizes[0], ranks[1] / ranks[0], whole.mean(), whole.std()])
        return None
