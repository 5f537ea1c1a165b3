"""Weights drawn 100 times too wide, as when 0.02 is mistyped as 2."""

from dataclasses import replace
from functools import partial

from steadyrun.tutor.model import init_weights
from steadyrun.tutor.recipe import Fault, Recipe


def inject(recipe: Recipe) -> Recipe:
    return replace(recipe, init_weights=partial(init_weights, std=2.0))


FAULT = Fault(
    name="bad-init",
    leaf="C5.1",
    summary="weights initialised 100 times too wide",
    change="init_weights draws from N(0, 2) where N(0, 0.02) was meant",
    inject=inject,
)
