"""Faults of the learning rate: too high, too low, zero, or with a jump."""

from dataclasses import replace

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.recipe import Fault, Recipe, lr_factor


def _inject_lr_typo(recipe: Recipe) -> Recipe:
    """Build the optimizer with a learning rate other than the declared one."""

    def build_optimizer(model: nn.Module, config: TutorConfig) -> Optimizer:
        return recipe.build_optimizer(model, replace(config, lr_max=10 * config.lr_max))

    return replace(recipe, build_optimizer=build_optimizer)


LR_TYPO = Fault(
    name="lr-typo",
    leaf="C2.1",
    summary="the learning rate is ten times the declared one",
    change="build_optimizer gets 3e-3 instead of the declared 3e-4",
    inject=_inject_lr_typo,
)


# AdamW with layer norms and clipping tolerates a lot: at 30 times the rate this model still learns, at 1,000 times it
# stalls with small gradients. Gradients stay large only if the exponent is lost completely.
_TIMES_TOO_HIGH = 10_000


def _inject_lr_too_high(recipe: Recipe) -> Recipe:
    """Declare a learning rate of 3 instead of 3e-4; the program follows its config."""
    return replace(recipe, config=replace(recipe.config, lr_max=_TIMES_TOO_HIGH * recipe.config.lr_max))


LR_TOO_HIGH = Fault(
    name="lr-too-high",
    leaf="C3.1",
    summary="the declared learning rate lost its exponent: 3 instead of 3e-4",
    change=f"lr_max is {_TIMES_TOO_HIGH:,} times too high",
    inject=_inject_lr_too_high,
)


_TIMES_TOO_LOW = 1000


def _inject_lr_too_low(recipe: Recipe) -> Recipe:
    """Declare a learning rate a thousand times too low; the program follows its config."""
    config = recipe.config
    return replace(
        recipe, config=replace(config, lr_max=config.lr_max / _TIMES_TOO_LOW, lr_min=config.lr_min / _TIMES_TOO_LOW)
    )


LR_TOO_LOW = Fault(
    name="lr-too-low",
    leaf="C4.1",
    summary=f"the declared learning rate is {_TIMES_TOO_LOW} times too low",
    change=f"lr_max and lr_min are {_TIMES_TOO_LOW} times too low",
    inject=_inject_lr_too_low,
)


def _inject_zero_lr(recipe: Recipe) -> Recipe:
    """Build the optimizer with learning rate 0 for the warmup, which the scheduler can only multiply."""

    def build_optimizer(model: nn.Module, config: TutorConfig) -> Optimizer:
        return recipe.build_optimizer(model, replace(config, lr_max=0.0))

    return replace(recipe, build_optimizer=build_optimizer)


ZERO_LR = Fault(
    name="zero-lr",
    leaf="C2.1",
    summary="the learning rate is 0 in every step",
    change="build_optimizer sets lr=0 in the param groups, which the schedule multiplies",
    inject=_inject_zero_lr,
)


RESTART = 50


def _inject_lr_jump(recipe: Recipe) -> Recipe:
    """A restart at half of the peak rate is written in percent, in a schedule of fractions."""

    def build_scheduler(optimizer: Optimizer, config: TutorConfig) -> LRScheduler:
        return LambdaLR(optimizer, lambda step: _factor(step, config))

    return replace(recipe, build_scheduler=build_scheduler)


def _factor(step: int, config: TutorConfig) -> float:
    return RESTART if step == config.steps // 2 else lr_factor(step, config)


LR_JUMP = Fault(
    name="lr-jump",
    leaf="D2.3",
    summary="for one step halfway through the run the learning rate is far too high",
    change=f"build_scheduler returns {RESTART} at half of the steps: {RESTART} times lr_max instead of {RESTART}%",
    inject=_inject_lr_jump,
    steps=600,
)


LR = 1.0


def _inject_unclipped(recipe: Recipe) -> Recipe:
    """Use a learning rate that only clipping could stabilise, without clipping and without decay."""
    config = replace(recipe.config, lr_max=LR, lr_min=LR / 10, clip=None, schedule="constant")
    return replace(recipe, config=config)


UNCLIPPED = Fault(
    name="unclipped",
    leaf="C4.1",
    summary="the learning rate is far too high, without clipping or decay: the loss diverges",
    change="the config has lr_max 1, clip None, schedule constant",
    inject=_inject_unclipped,
)
