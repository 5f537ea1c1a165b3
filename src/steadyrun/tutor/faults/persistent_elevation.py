"""A resume with optimizer state that was packed into four bits: small second moments come back as zero.

Where a second moment is 0 Adam divides by next to nothing, and a single step throws the weights far away.
"""

from dataclasses import replace

from torch import Tensor

from steadyrun.tutor.recipe import Fault, Recipe, TrainState

BITS = 4


def inject(recipe: Recipe) -> Recipe:
    def advance(state: TrainState) -> None:
        recipe.advance(state)
        if state.step + 1 == 3 * state.config.steps // 4:
            for moments in state.optimizer.state.values():
                moments["exp_avg_sq"] = _restored(moments["exp_avg_sq"])

    return replace(recipe, advance=advance)


def _restored(saved: Tensor) -> Tensor:
    """What is left of a tensor after packing: multiples of a fifteenth of its largest value."""
    unit = saved.max() / (2**BITS - 1)
    return (saved / unit).round() * unit if unit > 0 else saved


FAULT = Fault(
    name="persistent-elevation",
    leaf="D2.4",
    summary="one step throws the model out of what it has learnt, and it does not come back",
    change=f"after three quarters of the run the second moments are replaced by what {BITS} bits keep of them",
    inject=inject,
    steps=600,
)
