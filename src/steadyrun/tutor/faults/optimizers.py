"""Faults of the optimizer: its moments, its param groups, its decay and its parameters."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.recipe import Checkpoint, Fault, Recipe, TrainState


def _inject_rebuilt_adam(recipe: Recipe) -> Recipe:
    """Build a new optimizer in every step, with the right learning rate but without moments."""

    def advance(state: TrainState) -> None:
        recipe.advance(state)
        rates = state.scheduler.get_last_lr()
        optimizer = recipe.build_optimizer(state.model, state.config)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        state.scheduler.optimizer = state.optimizer = optimizer

    return replace(recipe, advance=advance)


REBUILT_ADAM = Fault(
    name="rebuilt-adam",
    leaf="C6.2",
    summary="every step has a new optimizer with the right learning rate but without moments",
    change="the loop calls build_optimizer after each step and gives it to the scheduler",
    inject=_inject_rebuilt_adam,
)


def _inject_rebuilt_optimizer(recipe: Recipe) -> Recipe:
    """Build optimizer and scheduler inside the loop: moments and schedule restart in every step."""

    def advance(state: TrainState) -> None:
        recipe.advance(state)
        state.optimizer = recipe.build_optimizer(state.model, state.config)
        state.scheduler = recipe.build_scheduler(state.optimizer, state.config)

    return replace(recipe, advance=advance)


REBUILT_OPTIMIZER = Fault(
    name="rebuilt-optimizer",
    leaf="C2.1",
    summary="every step has a new optimizer and a new scheduler",
    change="the loop calls build_optimizer and build_scheduler after each step",
    inject=_inject_rebuilt_optimizer,
)


def _inject_optimizer_reset(recipe: Recipe) -> Recipe:
    """Resume from a checkpoint without loading the optimizer."""
    return replace(recipe, load_checkpoint=_load_checkpoint, resume_at=recipe.config.steps // 2)


def _load_checkpoint(state: TrainState, saved: Checkpoint) -> None:
    state.model.load_state_dict(saved["model"])
    state.scheduler.load_state_dict(saved["scheduler"])
    for group, rate in zip(state.optimizer.param_groups, state.scheduler.get_last_lr(), strict=True):
        group["lr"] = rate


OPTIMIZER_RESET = Fault(
    name="optimizer-reset",
    leaf="D2.3",
    summary="halfway the run resumes with a new optimizer: no moments, step count 0",
    change="load_checkpoint, called at half of the steps, does not load the optimizer",
    inject=_inject_optimizer_reset,
    steps=600,
)


BITS = 4


def _inject_persistent_elevation(recipe: Recipe) -> Recipe:
    """Resume with optimizer state packed into four bits: small second moments come back as zero.

    With a second moment of 0, Adam divides by almost zero, and a single step moves the weights far away.
    """

    def advance(state: TrainState) -> None:
        recipe.advance(state)
        if state.step + 1 == 3 * state.config.steps // 4:
            for moments in state.optimizer.state.values():
                moments["exp_avg_sq"] = _restored(moments["exp_avg_sq"])

    return replace(recipe, advance=advance)


def _restored(saved: Tensor) -> Tensor:
    """The tensor after packing: multiples of a fifteenth of its largest value."""
    unit = saved.max() / (2**BITS - 1)
    return (saved / unit).round() * unit if unit > 0 else saved


PERSISTENT_ELEVATION = Fault(
    name="persistent-elevation",
    leaf="D2.4",
    summary="one step destroys what the model has learned, and the loss does not recover",
    change=f"after three quarters of the run the second moments are rounded to {BITS} bits",
    inject=_inject_persistent_elevation,
    steps=600,
)


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


def _inject_no_bias_correction(recipe: Recipe) -> Recipe:
    """Use a hand-written Adam without bias correction."""

    def build_optimizer(model: nn.Module, config: TutorConfig) -> Optimizer:
        groups = recipe.build_optimizer(model, config).param_groups
        chosen = [{"params": group["params"], "weight_decay": group["weight_decay"]} for group in groups]
        return UncorrectedAdamW(chosen, lr=config.lr_max)

    return replace(recipe, build_optimizer=build_optimizer)


NO_BIAS_CORRECTION = Fault(
    name="no-bias-correction",
    leaf="C6.2",
    summary="Adam has no bias correction, and its first steps are several times too large",
    change="build_optimizer returns an AdamW that does not divide by 1 - beta**t",
    inject=_inject_no_bias_correction,
)


def _inject_one_param_group(recipe: Recipe) -> Recipe:
    """Put all parameters into one group, so that biases and norm scales also decay."""

    def build_optimizer(model: nn.Module, config: TutorConfig) -> Optimizer:
        return AdamW(model.parameters(), lr=config.lr_max, weight_decay=config.weight_decay)

    return replace(recipe, build_optimizer=build_optimizer)


ONE_PARAM_GROUP = Fault(
    name="one-param-group",
    leaf="C6.1",
    summary="weight decay also applies to biases and norm scales",
    change="build_optimizer gives all parameters to AdamW as one group",
    inject=_inject_one_param_group,
)


def _inject_decay_absent(recipe: Recipe) -> Recipe:
    """Build AdamW without weight decay."""

    def build_optimizer(model: nn.Module, config: TutorConfig) -> Optimizer:
        return recipe.build_optimizer(model, replace(config, weight_decay=0.0))

    return replace(recipe, build_optimizer=build_optimizer)


DECAY_ABSENT = Fault(
    name="decay-absent",
    leaf="S5.2",
    summary="no weight decays although weight decay is declared",
    change="build_optimizer leaves weight_decay at 0",
    inject=_inject_decay_absent,
)


GROWTH = 10
WORKERS = 4


def _inject_decay_too_high(recipe: Recipe) -> Recipe:
    """Weight decay should grow tenfold over the run, but each of four workers multiplies it."""

    def advance(state: TrainState) -> None:
        recipe.advance(state)
        for _ in range(WORKERS):
            for group in state.optimizer.param_groups:
                group["weight_decay"] *= GROWTH ** (1 / state.config.steps)

    return replace(recipe, advance=advance)


DECAY_TOO_HIGH = Fault(
    name="decay-too-high",
    leaf="D4.3",
    summary="weight decay grows until the weights collapse",
    change=f"advance multiplies weight_decay {WORKERS} times a step: by {GROWTH**WORKERS:,} over the run, not {GROWTH}",
    inject=_inject_decay_too_high,
    steps=600,
)


def _inject_frozen_parameters(recipe: Recipe) -> Recipe:
    """Freeze everything except the last layer, which is selected by the wrong name."""

    def build_model(config: TutorConfig) -> nn.Module:
        model = recipe.build_model(config)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("final" in name)
        return model

    return replace(recipe, build_model=build_model)


FROZEN_PARAMETERS = Fault(
    name="frozen-parameters",
    leaf="C3.1",
    summary="nearly all parameters are frozen",
    change="build_model keeps requires_grad only for names with 'final': the last norm, not the head",
    inject=_inject_frozen_parameters,
)
