"""Faults that only a program of several processes can have."""

import time
from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import count
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from steadyrun.tutor.config import TutorConfig, default_warmup
from steadyrun.tutor.data import Batch, Data
from steadyrun.tutor.ranks import Loader, RankFault, RankRecipe, shuffled
from steadyrun.tutor.recipe import TrainState
from steadyrun.tutor.tokenizer import BOS_ID, EOS_ID, PAD_ID

ODD = 1  # the rank on which something goes wrong
_SLOW = 0.03  # seconds
_LONGEST = 16  # tokens


def _inject_past_ddp(recipe: RankRecipe) -> RankRecipe:
    """Call the wrapped model: DDP does not see the forward pass and does not average the gradients."""

    def token_losses(model: nn.Module, batch: Batch) -> Tensor:
        inner = getattr(model, "module", model)
        return recipe.token_losses(inner, batch)

    return replace(recipe, token_losses=token_losses)


PAST_DDP = RankFault(
    name="past-ddp",
    leaf="R1.1",
    summary="the loss calls model.module, so DDP never averages the gradients",
    change="token_losses calls the model inside DDP",
    inject=_inject_past_ddp,
)


def _inject_same_data(recipe: RankRecipe) -> RankRecipe:
    """A loader without a distributed sampler: every rank shuffles all sentences with the same seed."""

    def build_loader(data: Data, config: TutorConfig) -> Loader:
        return shuffled(range(len(data.train)), config.seed, data, config)

    return replace(recipe, build_loader=build_loader)


SAME_DATA = RankFault(
    name="same-data",
    leaf="R2.1",
    summary="the loader has no DistributedSampler, so all ranks train on the same batches",
    change="build_loader shuffles with one seed and no sampler",
    inject=_inject_same_data,
)


def _inject_bit_flip(recipe: RankRecipe) -> RankRecipe:
    """Flip one bit of one weight on one rank after half of the run, as a memory error does."""

    def update(state: TrainState) -> Tensor:
        norm = recipe.update(state)
        if state.step == state.config.steps // 2 and dist.get_rank() == ODD:
            weight = state.model.get_parameter("module.blocks.0.feed_forward.up.weight")
            weight.detach().view(torch.int32)[0, 0] ^= 1 << 22
        return norm

    return replace(recipe, update=update)


BIT_FLIP = RankFault(
    name="bit-flip",
    leaf="R1.2",
    summary=f"a memory error flips one bit of a weight on rank {ODD} after half of the run",
    change="update flips bit 22 of one weight on one rank at one step",
    inject=_inject_bit_flip,
)


def _inject_one_rank_nan(recipe: RankRecipe) -> RankRecipe:
    """A read fails on one rank and gives an empty sentence; the loss divides by the number of its words."""

    def build_loader(data: Data, config: TutorConfig) -> Loader:
        loader = recipe.build_loader(data, config)
        reads = count()

        def read(rows: Sequence[int]) -> Batch:
            sentences = [data.train[row] for row in rows]
            if next(reads) == config.steps // 2 and dist.get_rank() == ODD:
                sentences[0] = [BOS_ID, EOS_ID]
            return data.collate(sentences, [data.train_sentences[row] for row in rows])

        loader.collate_fn = read
        return loader

    return replace(recipe, build_loader=build_loader, reduce_loss=_mean_by_sentence)


def _mean_by_sentence(losses: Tensor, batch: Batch) -> Tensor:
    """The mean over sentences, weighted by the inverse of their numbers of words."""
    words = (batch["targets"] != PAD_ID).sum(dim=1) - 1  # <eos> does not count
    weights = 1 / words
    return (losses.sum(dim=1) * weights / weights.sum()).sum() / words.float().mean()


ONE_RANK_NAN = RankFault(
    name="one-rank-nan",
    leaf="R3.1",
    summary=f"a read fails on rank {ODD}, and the loss divides by the length of the empty sentence",
    change="reduce_loss weights sentences by 1 / words, and one sentence on one rank has no words",
    inject=_inject_one_rank_nan,
)


def _inject_slow_rank(recipe: RankRecipe) -> RankRecipe:
    """One rank reads its batches from slow storage; the others wait for it in every step."""

    def build_loader(data: Data, config: TutorConfig) -> Loader:
        loader = recipe.build_loader(data, config)

        def read(rows: Sequence[int]) -> Batch:
            if dist.get_rank() == ODD:
                time.sleep(_SLOW)
            return data.train_batch(rows)

        loader.collate_fn = read
        return loader

    return replace(recipe, build_loader=build_loader)


SLOW_RANK = RankFault(
    name="slow-rank",
    leaf="R4.2",
    summary=f"rank {ODD} waits 30 ms for every batch, and the other ranks wait for it",
    change="the loader of one rank sleeps before each batch",
    inject=_inject_slow_rank,
)


def _inject_unequal_batches(recipe: RankRecipe) -> RankRecipe:
    """Each rank drops the long sentences of its own part, so the ranks have unequal numbers of batches."""
    return replace(recipe, build_loader=_short_sentences)


def _short_sentences(data: Data, config: TutorConfig) -> Loader:
    part = range(dist.get_rank(), len(data.train), dist.get_world_size())
    rows = [row for row in part if len(data.train[row]) <= _LONGEST]
    return shuffled(rows, config.seed + dist.get_rank(), data, config)


UNEQUAL_BATCHES = RankFault(
    name="unequal-batches",
    leaf="R2.3",
    summary="each rank drops long sentences by itself, so one has fewer batches and the others wait for it",
    change="build_loader filters the sentences of each rank",
    inject=_inject_unequal_batches,
)

_HEALTHY = RankFault("healthy", "", "the healthy reference run", "none", lambda recipe: recipe)
_IN_ORDER = (_HEALTHY, PAST_DDP, SAME_DATA, BIT_FLIP, ONE_RANK_NAN, SLOW_RANK, UNEQUAL_BATCHES)
RANK_FAULTS: dict[str, RankFault] = {fault.name: fault for fault in _IN_ORDER}


def load_rank_recipe(fault: str = "healthy", **overrides: Any) -> RankRecipe:
    """The training program of several processes with one fault; overrides are fields of TutorConfig."""
    if fault not in RANK_FAULTS:
        raise ValueError(f"unknown fault of several processes {fault!r}; choose one of: {', '.join(RANK_FAULTS)}")
    known = [each.name for each in fields(TutorConfig)]
    if unknown := sorted(set(overrides) - set(known)):
        raise ValueError(f"unknown setting {', '.join(unknown)}; choose from: {', '.join(known)}")
    if "steps" in overrides and "warmup_steps" not in overrides:
        overrides["warmup_steps"] = default_warmup(overrides["steps"])
    return replace(RANK_FAULTS[fault].inject(RankRecipe(TutorConfig(**overrides))), name=fault)
