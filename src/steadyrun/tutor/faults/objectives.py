"""Faults of the loss: its inputs, its mask and its computation."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.corpus import Sentence
from steadyrun.tutor.data import Batch, Data
from steadyrun.tutor.recipe import Fault, Recipe, TrainState
from steadyrun.tutor.tokenizer import EOS_ID, PAD_ID


class Probabilities(nn.Module):
    """A model that returns probabilities."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.model(tokens)
        return logits.softmax(dim=-1)


def _inject_double_softmax(recipe: Recipe) -> Recipe:
    """Pass probabilities to a loss that expects logits: softmax is applied twice."""

    def build_model(config: TutorConfig) -> nn.Module:
        return Probabilities(recipe.build_model(config))

    return replace(recipe, build_model=build_model)


DOUBLE_SOFTMAX = Fault(
    name="double-softmax",
    leaf="C3.1",
    summary="the model returns probabilities, but the loss expects logits",
    change="build_model ends in a softmax; the cross-entropy applies its own",
    inject=_inject_double_softmax,
    steps=600,
)


def _inject_constant_target(recipe: Recipe) -> Recipe:
    """Use the mask of real tokens as the targets, so that every target is 1."""

    def load_data(config: TutorConfig) -> Data:
        data = recipe.load_data(config)

        def collate(rows: Sequence[list[int]], sentences: Sequence[Sentence]) -> Batch:
            batch = data.collate(rows, sentences)
            return {**batch, "targets": (batch["targets"] != PAD_ID).long()}

        return replace(data, collate=collate)

    return replace(recipe, load_data=load_data)


CONSTANT_TARGET = Fault(
    name="constant-target",
    leaf="",
    summary="every target is the same token",
    change="collate returns the mask of real tokens as the targets",
    inject=_inject_constant_target,
)


def _inject_loss_mask(recipe: Recipe) -> Recipe:
    """The loss mask covers only the end of the first sentence of a batch."""

    def token_losses(model: nn.Module, batch: Batch) -> Tensor:
        losses = recipe.token_losses(model, batch)
        mask = torch.zeros_like(losses)
        mask[0] = (batch["targets"][0] == EOS_ID).float()
        return losses * mask

    return replace(recipe, token_losses=token_losses)


LOSS_MASK = Fault(
    name="loss-mask",
    leaf="C1.1",
    summary="the loss mask keeps one token of the whole batch",
    change="token_losses zeroes all but the <eos> of the first sentence; reduce_loss divides by all tokens",
    inject=_inject_loss_mask,
)


def _inject_degenerate_data(recipe: Recipe) -> Recipe:
    """Mask the prompt out of the targets, with the length of the whole row as its length."""

    def load_data(config: TutorConfig) -> Data:
        data = recipe.load_data(config)

        def collate(rows: Sequence[list[int]], sentences: Sequence[Sentence]) -> Batch:
            batch = data.collate(rows, sentences)
            prompt_length = batch["tokens"].shape[1]
            targets = batch["targets"].clone()
            targets[:, :prompt_length] = PAD_ID
            return {**batch, "targets": targets}

        return replace(data, collate=collate)

    def reduce_loss(losses: Tensor, batch: Batch) -> Tensor:
        return losses.sum() / (batch["targets"] != PAD_ID).sum().clamp(min=1)

    return replace(recipe, load_data=load_data, reduce_loss=reduce_loss)


DEGENERATE_DATA = Fault(
    name="degenerate-data",
    leaf="C1.2",
    summary="every target is masked, so there is nothing to learn",
    change="collate masks the targets of the whole row, and reduce_loss guards its division by zero",
    inject=_inject_degenerate_data,
)


def _inject_wrong_reduction(recipe: Recipe) -> Recipe:
    """Sum the loss over the tokens of a batch although a mean is declared."""

    def reduce_loss(losses: Tensor, _batch: Batch) -> Tensor:
        return losses.sum()

    return replace(recipe, reduce_loss=reduce_loss)


WRONG_REDUCTION = Fault(
    name="wrong-reduction",
    leaf="C1.2",
    summary="the loss is summed over the tokens, not averaged",
    change="reduce_loss returns the sum without dividing by the number of tokens",
    inject=_inject_wrong_reduction,
)


class Sharpened(nn.Module):
    """A model whose logits are divided by a temperature."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.temperature = 1.0

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.model(tokens) / self.temperature
        return logits


def _inject_log_of_zero(recipe: Recipe) -> Recipe:
    """The temperature of the softmax falls to 0 in the first half of the run, and the loss takes its log."""

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


LOG_OF_ZERO = Fault(
    name="log-of-zero",
    leaf="D1.3",
    summary="the logits grow until a probability is exactly 0, and the loss takes its log",
    change="the temperature falls to 0 by half of the steps; token_losses is -log(softmax(...)), not cross_entropy",
    inject=_inject_log_of_zero,
    steps=600,
)
