"""The loader hands out the batch in its buffer again and again while the next one is not ready."""

from collections.abc import Iterator
from dataclasses import replace

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.data import Data
from steadyrun.tutor.recipe import Fault, Recipe

REPEATS = 100


def inject(recipe: Recipe) -> Recipe:
    def batch_order(data: Data, config: TutorConfig) -> Iterator[list[int]]:
        middle = config.steps * config.accumulation // 2
        for number, indices in enumerate(recipe.batch_order(data, config)):
            for _ in range(1 + REPEATS if number == middle else 1):
                yield indices

    return replace(recipe, batch_order=batch_order)


FAULT = Fault(
    name="duplicate-batch",
    leaf="D2.3",
    summary=f"in the middle of the run one batch comes {REPEATS} times more",
    change="batch_order repeats the batch that is due at half time",
    inject=inject,
    steps=600,
)
