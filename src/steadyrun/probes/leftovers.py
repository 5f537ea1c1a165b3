"""Gradients where none should be, and none where they should: seen when backward begins and when the optimizer steps.

Between a step of an optimizer and its next one, its gradients must be empty once when a backward pass begins.
With two optimizers that take turns, and with accumulation, one empty beginning is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from steadyrun.probes.norms import global_norm
from steadyrun.probes.pending import Row


class LeftoverProbe:
    """Follows, in a sampled step, what is in the gradients before backward adds to them and when they are used."""

    def __init__(self, parameters: list[nn.Parameter], optimizers: Callable[[], list[Any]]) -> None:
        self._parameters = parameters
        self._optimizers = optimizers
        self.sample = False
        self._smallest: Tensor | None = None
        self._began = False
        self._used: Tensor | float | None = None
        self._stepped = False  # an optimizer has stepped before: what is left now was used already

    def backward_begins(self) -> None:
        """Keep the smallest norm with which any backward pass of this step began."""
        if not self.sample or not self._stepped:
            return
        left = [held.grad for held in self._stepping() if held.grad is not None]
        norm = global_norm(left)
        if norm is None:
            norm = torch.zeros(())
        self._smallest = norm if self._smallest is None else torch.minimum(self._smallest.to(norm.device), norm)
        self._began = True

    def before_step(self, optimizer: Any) -> None:
        """Whether the optimizer finds any gradient."""
        if self.sample and self._used is None:
            held = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            norm = global_norm(held)
            self._used = 0.0 if norm is None else norm

    def after_step(self) -> None:
        self._stepped = True

    def fill(self, row: Row, made: bool) -> None:
        """`made` says whether a backward pass has ended in this step."""
        if self._began:
            row.put("grad_norm_left", self._smallest)
        if self._used is not None and made:
            row.put("grad_norm_used", self._used)
        self.forget()

    def forget(self) -> None:
        self._smallest, self._used, self._began = None, None, False

    def _stepping(self) -> list[Tensor]:
        """The parameters of the first optimizer; of all where there is none."""
        optimizers = self._optimizers()
        if not optimizers:
            return list(self._parameters)
        return [held for group in optimizers[0].param_groups for held in group["params"]]
