"""Embeddings divided by their length, with a guard for length 0 that saves the forward pass and not the backward."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.data import Data
from steadyrun.tutor.model import MiniGPT
from steadyrun.tutor.recipe import Fault, Recipe
from steadyrun.tutor.tokenizer import PAD_ID

# Until then a batch has sentences of one length, as a curriculum, and no <pad> among its inputs.
CURRICULUM_EPOCHS = 5


class UnitEmbedding(nn.Embedding):
    """Rows of length 1; the row of <pad> is zero and stays as it is."""

    def forward(self, tokens: Tensor) -> Tensor:
        rows = super().forward(tokens)
        length = (rows * rows).sum(dim=-1, keepdim=True).sqrt()
        return torch.where(length > 0, rows / length, rows)


def inject(recipe: Recipe) -> Recipe:
    def build_model(config: TutorConfig) -> nn.Module:
        model = recipe.build_model(config)
        assert isinstance(model, MiniGPT)
        model.embedding.token = UnitEmbedding(config.vocab_size, config.width)
        return model

    def init_weights(model: nn.Module) -> None:
        recipe.init_weights(model)
        with torch.no_grad():
            model.get_parameter("embedding.token.weight")[PAD_ID] = 0.0

    def batch_order(data: Data, config: TutorConfig) -> Iterator[list[int]]:
        yield from _by_length(data, config)
        yield from recipe.batch_order(data, config)

    return replace(recipe, build_model=build_model, init_weights=init_weights, batch_order=batch_order)


def _by_length(data: Data, config: TutorConfig) -> Iterator[list[int]]:
    """The batches of a few epochs, each of sentences of one length; what does not fill a batch is left out."""
    generator = torch.Generator().manual_seed(config.seed)
    for _ in range(CURRICULUM_EPOCHS):
        waiting: dict[int, list[int]] = {}
        for index in torch.randperm(len(data.train), generator=generator).tolist():
            same = waiting.setdefault(len(data.train[index]), [])
            same.append(index)
            if len(same) == config.batch_size:
                yield same.copy()
                same.clear()


FAULT = Fault(
    name="infinite-embedding-gradient",
    leaf="D1.3",
    summary="with the first <pad> the loss is finite and the gradient of the embedding is not",
    change="the token embedding is divided by its length under a where(length > 0), whose other side is 0/0",
    inject=inject,
    steps=600,
)
