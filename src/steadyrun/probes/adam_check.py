"""Checks the arithmetic of an Adam-like optimizer: the update is recomputed from its moments and compared.

Of every param group one tensor is looked at. With `w` before the step, `d` its change and `u` the textbook
direction from the recorded moments (bias-corrected), `d = -lr (a u + b w)` is solved for `a` and `b` by least
squares: `a` is 1 when the optimizer does what Adam says, `b` is its decoupled weight decay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steadyrun.probes.optimizer_steps import OptimizerLike, ParamGroup
from steadyrun.probes.row_queue import HostArray, ProbeRow, Unpack, Values

_SMALLEST, _LARGEST = 16, 65_536  # elements of the tensor that is looked at
_ROUNDING = 20 * float(np.finfo(np.float32).eps)


@dataclass
class UpdateProbe:
    """Follows one tensor per param group through one optimizer step."""

    _before: dict[int, Tensor] = field(default_factory=dict)
    _products: dict[int, Tensor] = field(default_factory=dict)

    def snapshot(self, optimizer: OptimizerLike, first: int) -> None:
        """Before the step; `first` is the number of the optimizer's first param group."""
        for index, group in enumerate(optimizer.param_groups):
            parameter = _chosen(group)
            if parameter is not None:
                self._before[first + index] = parameter.detach().clone()

    def compare(self, optimizer: OptimizerLike, first: int) -> None:
        """After the step: the inner products that the fit needs, still on the device."""
        for index, group in enumerate(optimizer.param_groups):
            before = self._before.pop(first + index, None)
            parameter = _chosen(group)
            if before is None or parameter is None or parameter.shape != before.shape:
                continue
            state = optimizer.state.get(parameter, {})
            if {"exp_avg", "exp_avg_sq", "step"} <= set(state):
                self._products[first + index] = _products(before, parameter.detach(), state, group)

    def fill(self, row: ProbeRow) -> None:
        for group, products in self._products.items():
            row.put_many(products, _solved(group))
        self._before, self._products = {}, {}


def _chosen(group: ParamGroup) -> Tensor | None:
    """A tensor of a group with Adam's settings, neither tiny nor large; always the same one."""
    if not {"lr", "betas", "eps"} <= set(group) or group.get("amsgrad") or group.get("maximize"):
        return None
    for parameter in group["params"]:
        whole = not hasattr(parameter, "full_tensor")
        if whole and parameter.dtype == torch.float32 and _SMALLEST <= parameter.numel() <= _LARGEST:
            return parameter if parameter.requires_grad else None
    return None


def _products(before: Tensor, after: Tensor, state: dict[str, Any], group: ParamGroup) -> Tensor:
    wide = torch.float64 if before.device.type in {"cpu", "cuda"} else torch.float32
    beta1, beta2 = group["betas"]
    count = torch.as_tensor(state["step"], device=before.device).to(wide)
    first, second = state["exp_avg"].to(wide), state["exp_avg_sq"].to(wide)
    direction = first / (1 - beta1**count) / ((second / (1 - beta2**count)).sqrt() + group["eps"])
    rate = torch.as_tensor(group["lr"], device=before.device).to(wide)
    rows = torch.stack([(before.to(wide) - after.to(wide)).flatten(), direction.flatten(), before.to(wide).flatten()])
    return torch.cat([(rows @ rows.T).flatten(), rate.reshape(1)])


def _solved(group: int) -> Unpack:
    def unpack(array: HostArray) -> Values:
        products, rate = array[:9].reshape(3, 3).astype(float), float(array[9])
        moved, known, target = products[0, 0], products[1:, 1:], products[0, 1:]
        drowned = moved < (_ROUNDING**2) * products[2, 2]  # a change this small is mostly rounding
        if not np.isfinite(products).all() or rate <= 0 or known[0, 0] == 0 or moved == 0 or drowned:
            return {}
        scale, decay = np.linalg.lstsq(known, target, rcond=1e-9)[0]
        left = moved - np.dot(target, (scale, decay))
        misfit = np.sqrt(max(0.0, left) / moved)
        return {
            f"update_scale/{group}": float(scale / rate),
            f"update_decay/{group}": float(decay / rate),
            f"update_misfit/{group}": float(misfit),
        }

    return unpack
