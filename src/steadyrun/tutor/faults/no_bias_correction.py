"""An Adam written by hand that forgets to correct its moments for having begun at zero."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.recipe import Fault, Recipe


class UncorrectedAdamW(Optimizer):
    """AdamW without the division of the moments by 1 - beta**t."""

    def __init__(self, groups: Any, lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, parameter.grad, group)

    def _move(self, parameter: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        state["step"] += 1
        beta1, beta2 = group["betas"]
        state["exp_avg"].lerp_(grad, 1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.addcdiv_(state["exp_avg"], state["exp_avg_sq"].sqrt() + group["eps"], value=-group["lr"])


def inject(recipe: Recipe) -> Recipe:
    def build_optimizer(model: nn.Module, config: TutorConfig) -> Optimizer:
        groups = recipe.build_optimizer(model, config).param_groups
        chosen = [{"params": group["params"], "weight_decay": group["weight_decay"]} for group in groups]
        return UncorrectedAdamW(chosen, lr=config.lr_max)

    return replace(recipe, build_optimizer=build_optimizer)


FAULT = Fault(
    name="no-bias-correction",
    leaf="C6.2",
    summary="Adam uses its moments without bias correction, and its first steps are several times too long",
    change="build_optimizer returns an AdamW that does not divide by 1 - beta**t",
    inject=inject,
)
