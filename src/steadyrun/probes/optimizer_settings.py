"""How the optimizers of a rank are set, which other ranks are compared with afterwards."""

from __future__ import annotations

from typing import Any

from steadyrun.probes.optimizer_steps import OptimizerLike

# Rates are compared step by step. The others choose how an update is computed, not which.
_LEFT_OUT = ("params", "lr", "initial_lr", "foreach", "fused", "capturable", "differentiable")
_MOST_GROUPS = 100


def settings_of(optimizer: OptimizerLike) -> dict[str, Any]:
    """The class of an optimizer, and of each group how much it steps and with which settings."""
    groups = [
        {
            "parameters": len(group["params"]),
            "elements": sum(parameter.numel() for parameter in group["params"]),
            "settings": {name: value for name, value in group.items() if name not in _LEFT_OUT and _is_plain(value)},
        }
        for group in optimizer.param_groups[:_MOST_GROUPS]
    ]
    return {"class": type(optimizer).__name__, "groups": groups}


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(isinstance(each, int | float) for each in value)
    return isinstance(value, int | float | str)
