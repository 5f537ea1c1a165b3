"""The loss is the sum over the tokens of a batch where their mean is declared."""

from dataclasses import replace

from torch import Tensor

from steadyrun.tutor.data import Batch
from steadyrun.tutor.recipe import Fault, Recipe


def inject(recipe: Recipe) -> Recipe:
    def reduce_loss(losses: Tensor, _batch: Batch) -> Tensor:
        return losses.sum()

    return replace(recipe, reduce_loss=reduce_loss)


FAULT = Fault(
    name="wrong-reduction",
    leaf="C1.2",
    summary="the loss is summed over the tokens, not averaged",
    change="reduce_loss returns the sum and leaves out the division by the number of tokens",
    inject=inject,
)
