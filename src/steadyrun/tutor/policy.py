"""A policy (GRPO): the tutor answers each prompt several times, a right answer has reward 1, a wrong one 0.

An answer's advantage is its reward minus the mean of its group. Few prompts, so that each is answered often.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.data import Batch, Data
from steadyrun.tutor.exchanges import IGNORED, answering, answers, choices, chosen, log_probabilities, reference
from steadyrun.tutor.recipe import Recipe
from steadyrun.tutor.tokenizer import EOS_ID, PAD_ID

PROMPTS, GROUP, LONGEST = 24, 6, 5  # prompts, answers to each, tokens of an answer
CLIP = 0.2
BETA = 0.02  # weight of the divergence from the reference

Reward = Callable[[list[int], list[int]], float]


def is_right(answer: list[int], right: list[int]) -> float:
    """1 for the right tokens, with their end."""
    return float(answer == right)


def advantages(rewards: Tensor) -> Tensor:
    """How much better each answer is than its group; `rewards` has the shape (prompts, answers)."""
    return rewards - rewards.mean(dim=1, keepdim=True)


def sample(model: nn.Module, batch: Batch) -> Batch:
    """`GROUP` sampled answers to each prompt of the batch, with the labels of the answered tokens."""
    prompts = (batch["attention_mask"] * (batch["labels"] == IGNORED)).repeat_interleave(GROUP, dim=0)
    lengths, rows = prompts.sum(dim=1), torch.arange(len(prompts))
    ids = torch.full((len(prompts), int(lengths.max()) + LONGEST), PAD_ID)
    ids[:, : prompts.shape[1]] = (batch["input_ids"].repeat_interleave(GROUP, dim=0) * prompts)[:, : ids.shape[1]]
    labels = torch.full_like(ids, IGNORED)
    for number in range(LONGEST):
        at = lengths[rows] + number
        logits = model(ids[rows, : int(at.max())])[torch.arange(len(rows)), at - 1].float()
        drawn = torch.multinomial(logits.softmax(dim=1), 1).squeeze(1)
        ids[rows, at] = labels[rows, at] = drawn
        rows = rows[drawn != EOS_ID]
        if not len(rows):
            break
    return {"input_ids": ids, "labels": labels}


def policy(recipe: Recipe, reward: Reward = is_right, compare: Callable[[Tensor], Tensor] = advantages) -> Recipe:
    """Reinforcement learning from a model that knows some of the answers."""
    tuned = answers(recipe)

    @torch.no_grad()
    def prepare(model: nn.Module, batch: Batch) -> Batch:
        sampled = sample(model, batch)
        right = [row[row != IGNORED].tolist() for row in batch["labels"] for _ in range(GROUP)]
        given = [row[row != IGNORED].tolist() for row in sampled["labels"]]
        rewards = torch.tensor([reward(one, other) for one, other in zip(given, right, strict=True)])
        return {
            "input_ids": sampled["input_ids"],
            "labels": sampled["labels"],
            "rewards": rewards.view(-1, GROUP),
            "advantages": compare(rewards.view(-1, GROUP)).flatten(),
            "sampled": log_probabilities(model, sampled),
            "reference": log_probabilities(reference(tuned.config), sampled),
        }

    def token_losses(model: nn.Module, batch: Batch) -> Tensor:
        now, advantage = log_probabilities(model, batch), batch["advantages"].unsqueeze(1)
        ratio = (now - batch["sampled"]).exp()
        gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
        return (BETA * divergence(now, batch["reference"]) - gain) * answered(batch)

    def load_prompts(config: TutorConfig) -> Data:
        data = tuned.load_data(config)
        return replace(data, train=data.train[:PROMPTS], train_sentences=data.train_sentences[:PROMPTS])

    return replace(
        tuned,
        load_data=load_prompts,
        config=replace(tuned.config, batch_size=4, lr_max=3e-4, lr_min=3e-5),
        build_model=answering,
        prepare=prepare,
        token_losses=token_losses,
        reduce_loss=lambda losses, batch: losses.sum() / answered(batch).sum(),
        measure=measure,
        validates=False,
    )


def answered(batch: Batch) -> Tensor:
    """The tokens of the answers, in the shape of their log-probabilities."""
    return batch["labels"][:, 1:] != IGNORED


def entropy(choices: Tensor) -> Tensor:
    """How undecided each choice of a token is, in nats."""
    return -(choices.exp() * choices).sum(dim=-1)


def divergence(now: Tensor, before: Tensor) -> Tensor:
    """An estimate of the KL divergence per token, never negative."""
    return (before - now).exp() - (before - now) - 1


@torch.no_grad()
def measure(model: nn.Module, batch: Batch) -> dict[str, float]:
    """What trainers of policies log."""
    rewards, tokens = batch["rewards"], answered(batch)
    every = choices(model, batch)
    now = chosen(every, batch)
    moved = (now - batch["sampled"])[tokens]
    spread = rewards.std(dim=1)
    return {
        "reward": rewards.mean().item(),
        "reward_std": spread.mean().item(),
        "frac_reward_zero_std": (spread == 0).float().mean().item(),
        "entropy": entropy(every)[tokens].mean().item(),
        "kl": divergence(now, batch["reference"])[tokens].mean().item(),
        "approx_kl": -moved.mean().item(),
        "clip_fraction": ((moved.exp() - 1).abs() > CLIP).float().mean().item(),
        "completions/mean_length": tokens.sum(dim=1).float().mean().item(),
        "completions/clipped_ratio": (batch["input_ids"] != EOS_ID).all(dim=1).float().mean().item(),
    }
