"""Faults of the model: masks, norms, gates, heads and units."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.data import Data
from steadyrun.tutor.model import Block, FeedForward, MiniGPT
from steadyrun.tutor.recipe import Fault, Recipe, model_config
from steadyrun.tutor.tokenizer import PAD_ID


def _inject_broken_mask(recipe: Recipe) -> Recipe:
    """Attention without its causal mask: every position sees the tokens it has to predict."""

    def build_model(config: TutorConfig) -> nn.Module:
        return MiniGPT(replace(model_config(config), causal=False))

    return replace(recipe, build_model=build_model)


BROKEN_MASK = Fault(
    name="broken-mask",
    leaf="S1.1",
    summary="attention is not causal: the model reads the answers",
    change="build_model makes every attention layer with causal=False",
    inject=_inject_broken_mask,
)


class PostNorm(nn.Module):
    """A block whose output should be scaled to length sqrt(width): weight * sqrt(width) * x / |x|."""

    def __init__(self, block: nn.Module, width: int) -> None:
        super().__init__()
        self.block = block
        self.weight = nn.Parameter(torch.ones(width))
        self.length = width**0.5

    def forward(self, x: Tensor) -> Tensor:
        scaled: Tensor = self.weight * self.length * self.block(x)
        return scaled


def _inject_broken_normalisation(recipe: Recipe) -> Recipe:
    """A norm written by hand that multiplies by sqrt(width) and forgets to divide by the length."""

    def build_model(config: TutorConfig) -> nn.Module:
        model = recipe.build_model(config)
        assert isinstance(model, MiniGPT)
        model.blocks = nn.ModuleList(PostNorm(block, config.width) for block in model.blocks)
        return model

    return replace(recipe, build_model=build_model)


BROKEN_NORMALISATION = Fault(
    name="broken-normalisation",
    leaf="C5.2",
    summary="the norm after each block multiplies what it should scale down",
    change="build_model puts a norm after the blocks that lacks its division by the length",
    inject=_inject_broken_normalisation,
)


def _inject_missing_normalisation(recipe: Recipe) -> Recipe:
    """The blocks have no layer norms."""

    def build_model(config: TutorConfig) -> nn.Module:
        model = recipe.build_model(config)
        for module in model.modules():
            if isinstance(module, Block):
                for norm in ("attention_norm", "feed_forward_norm"):
                    setattr(module, norm, nn.Identity())
        return model

    return replace(recipe, build_model=build_model)


MISSING_NORMALISATION = Fault(
    name="missing-normalisation",
    leaf="",
    summary="the blocks do not normalise their inputs",
    change="build_model puts nn.Identity where each block has its layer norms",
    inject=_inject_missing_normalisation,
)


class GatedBlock(nn.Module):
    """gate * (x + f(x)), where x + gate * f(x) was meant."""

    def __init__(self, block: nn.Module, gate: float) -> None:
        super().__init__()
        self.block = block
        self.gate = nn.Parameter(torch.tensor(gate))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.gate * self.block(x)
        return out


def _inject_dead_layer(recipe: Recipe) -> Recipe:
    """Gates meant for what a block adds multiply all that comes out of it; they grow with depth, the first is 0."""

    def build_model(config: TutorConfig) -> nn.Module:
        model = recipe.build_model(config)
        assert isinstance(model, MiniGPT)
        gates = torch.linspace(0, 1, config.layers).tolist()
        model.blocks = nn.ModuleList(GatedBlock(*each) for each in zip(model.blocks, gates, strict=True))
        return model

    return replace(recipe, build_model=build_model)


DEAD_LAYER = Fault(
    name="dead-layer",
    leaf="S4.2",
    summary="what comes out of the first block is next to nothing",
    change="build_model multiplies the output of each block by a gate, from 0 for the first to 1 for the last",
    inject=_inject_dead_layer,
)


BIAS = -10.0


def _inject_dead_units(recipe: Recipe) -> Recipe:
    """Feed-forward layers with a ReLU whose biases begin at -10: hardly a unit ever speaks."""

    def build_model(config: TutorConfig) -> nn.Module:
        model = recipe.build_model(config)
        for module in model.modules():
            if isinstance(module, FeedForward):
                module.activation = nn.ReLU()  # type: ignore[assignment]
        return model

    def init_weights(model: nn.Module) -> None:
        recipe.init_weights(model)
        for module in model.modules():
            if isinstance(module, FeedForward):
                nn.init.constant_(module.up.bias, BIAS)

    return replace(recipe, build_model=build_model, init_weights=init_weights)


DEAD_UNITS = Fault(
    name="dead-units",
    leaf="S6.1",
    summary="nearly all hidden units of the feed-forward layers are silent from the start",
    change=f"the activation is a ReLU and init_weights sets the biases before it to {BIAS:g}",
    inject=_inject_dead_units,
)


EPSILON = 1e-8


class TemperedQueries(nn.Module):
    """The joint projection of an attention layer, the queries of each head divided by its temperature."""

    def __init__(self, projection: nn.Module, heads: int) -> None:
        super().__init__()
        self.projection = projection
        self.temperatures = torch.sqrt(torch.arange(heads) + EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        queries, rest = self.projection(x).split([x.shape[-1], 2 * x.shape[-1]], dim=-1)
        by_head = queries.unflatten(-1, (len(self.temperatures), -1))
        return torch.cat([(by_head / self.temperatures[:, None]).flatten(-2), rest], dim=-1)


def _inject_stuck_head(recipe: Recipe) -> Recipe:
    """A temperature per head, the root of its number, counted from 0: the first head divides by almost nothing."""

    def build_model(config: TutorConfig) -> nn.Module:
        model = recipe.build_model(config)
        assert isinstance(model, MiniGPT)
        attention = model.blocks[-1].get_submodule("attention")
        attention.qkv = TemperedQueries(attention.get_submodule("qkv"), config.heads)
        return model

    return replace(recipe, build_model=build_model)


STUCK_HEAD = Fault(
    name="stuck-head",
    leaf="S6.2",
    summary="one attention head looks at a single key from the first step to the last",
    change="the last block divides the queries of head h by sqrt(h), with h from 0",
    inject=_inject_stuck_head,
)


# Until then a batch has sentences of one length, as a curriculum, and no <pad> among its inputs.
CURRICULUM_EPOCHS = 5


class UnitEmbedding(nn.Embedding):
    """Rows of length 1; the row of <pad> is zero and stays as it is."""

    def forward(self, tokens: Tensor) -> Tensor:
        rows = super().forward(tokens)
        length = (rows * rows).sum(dim=-1, keepdim=True).sqrt()
        return torch.where(length > 0, rows / length, rows)


def _inject_infinite_embedding_gradient(recipe: Recipe) -> Recipe:
    """Embeddings divided by their length; a guard for length 0 saves the forward pass and not the backward."""

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


INFINITE_EMBEDDING_GRADIENT = Fault(
    name="infinite-embedding-gradient",
    leaf="D1.3",
    summary="with the first <pad> the loss is finite and the gradient of the embedding is not",
    change="the token embedding is divided by its length under a where(length > 0), whose other side is 0/0",
    inject=_inject_infinite_embedding_gradient,
    steps=600,
)
