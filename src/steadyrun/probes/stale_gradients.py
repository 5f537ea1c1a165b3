"""Gradients where none should be, and none where they should: seen when backward begins and when the optimizer steps.

Between a step of an optimizer and its next one, its gradients must be empty once when a backward pass begins.
With two optimizers that take turns, and with accumulation, one empty beginning is enough. When a pass begins at other
weights than the one before it, as in sharpness-aware training, the gradients in between were used and not erased.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from steadyrun.probes.norms import global_norm
from steadyrun.probes.optimizer_steps import OptimizerLike
from steadyrun.probes.row_queue import ProbeRow


class LeftoverProbe:
    """Follows, in a sampled step, what is in the gradients before backward adds to them and when they are used."""

    def __init__(self, optimizers: Callable[[], list[OptimizerLike]]) -> None:
        self._optimizers = optimizers
        self.sample = False
        self._smallest: dict[int, Tensor] = {}  # by optimizer
        self._empty: dict[int, Tensor] = {}  # by optimizer: backward passes that began without gradients
        self._weights: dict[int, int] = {}  # by optimizer: how often its parameters had moved when backward began
        self._stepping: set[int] = set()  # the optimizers that step in this step
        self._used: Tensor | float | None = None
        self._stepped = False  # an optimizer has stepped before: what is left now was used already

    def backward_begins(self) -> None:
        """Keep the smallest norm with which any backward pass of this step began."""
        if not self.sample or not self._stepped:
            return
        for optimizer in self._optimizers():
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            norm = global_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
            now = torch.zeros(()) if norm is None else norm
            known = self._smallest.get(id(optimizer), now)
            self._smallest[id(optimizer)] = torch.minimum(known.to(now.device), now)
            moves = sum(parameter._version for parameter in parameters if not parameter.is_inference())
            if self._weights.get(id(optimizer), moves) == moves:  # else the earlier gradients were used to move them
                self._empty[id(optimizer)] = (now == 0).float() + self._empty.get(id(optimizer), 0.0)
            self._weights[id(optimizer)] = moves

    def before_step(self, optimizer: OptimizerLike) -> None:
        """Whether the optimizer finds any gradient."""
        self._stepping.add(id(optimizer))
        if self.sample and self._used is None:
            gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            norm = global_norm(gradients)
            self._used = 0.0 if norm is None else norm

    def after_step(self) -> None:
        self._stepped = True

    def fill(self, row: ProbeRow, made: bool) -> None:
        """`made` says whether a backward pass has ended in this step."""
        left = [norm for key, norm in self._smallest.items() if key in self._stepping]
        if left:  # one that does not step now need not be cleared
            row.put("grad_norm_left", torch.stack([norm.to(left[0].device) for norm in left]).amax())
            empty = [count for key, count in self._empty.items() if key in self._stepping]
            row.put("empty_starts", torch.stack([count.to(empty[0].device) for count in empty]).amax())
        if self._used is not None and made:
            row.put("grad_norm_used", self._used)
        self.forget()

    def forget(self) -> None:
        self._smallest, self._empty, self._weights, self._used, self._stepping = {}, {}, {}, None, set()
