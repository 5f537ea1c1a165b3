"""The softmax is sharpened over the first half of the run, without a lower bound, and the loss is the log of it."""

from dataclasses import replace

from torch import Tensor, nn

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.data import Batch
from steadyrun.tutor.recipe import Fault, Recipe, TrainState
from steadyrun.tutor.tokenizer import PAD_ID


class Sharpened(nn.Module):
    """A model whose logits are divided by a temperature."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.temperature = 1.0

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.model(tokens) / self.temperature
        return logits


def inject(recipe: Recipe) -> Recipe:
    def build_model(config: TutorConfig) -> nn.Module:
        return Sharpened(recipe.build_model(config))

    def advance(state: TrainState) -> None:
        recipe.advance(state)
        assert isinstance(state.model, Sharpened)
        state.model.temperature = 1 - (state.step + 1) / max(1, state.config.steps // 2)

    return replace(recipe, build_model=build_model, token_losses=_token_losses, advance=advance)


def _token_losses(model: nn.Module, batch: Batch) -> Tensor:
    probabilities = model(batch["tokens"]).softmax(dim=-1)
    targets = batch["targets"]
    chosen = probabilities.gather(2, targets.unsqueeze(2)).squeeze(2)
    losses: Tensor = -chosen.masked_fill(targets == PAD_ID, 1.0).log()
    return losses


FAULT = Fault(
    name="log-of-zero",
    leaf="D1.3",
    summary="the logits grow without bound until a probability is exactly 0, and its log is taken",
    change="the temperature falls to 0 by half time, and token_losses is -log(softmax(...)) instead of cross_entropy",
    inject=inject,
    steps=600,
)
