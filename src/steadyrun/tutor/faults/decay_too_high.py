"""Weight decay is to grow tenfold over the run, a little in every step, and every one of four workers does it."""

from dataclasses import replace

from steadyrun.tutor.recipe import Fault, Recipe, TrainState

GROWTH = 10
WORKERS = 4


def inject(recipe: Recipe) -> Recipe:
    def advance(state: TrainState) -> None:
        recipe.advance(state)
        for _ in range(WORKERS):
            for group in state.optimizer.param_groups:
                group["weight_decay"] *= GROWTH ** (1 / state.config.steps)

    return replace(recipe, advance=advance)


FAULT = Fault(
    name="decay-too-high",
    leaf="D4.3",
    summary="weight decay grows until the weights collapse",
    change=f"advance multiplies weight_decay {WORKERS} times a step: by {GROWTH**WORKERS:,} over the run, not {GROWTH}",
    inject=inject,
    steps=600,
)
