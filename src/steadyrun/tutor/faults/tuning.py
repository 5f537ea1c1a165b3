"""Fine-tuning, adapters, preferences and policies: the healthy programs, and faults that only these can have."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.optim import Optimizer

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.corpus import Sentence
from steadyrun.tutor.data import Batch
from steadyrun.tutor.exchanges import IGNORED, answers, collate
from steadyrun.tutor.lora import LoRA, adapters
from steadyrun.tutor.policy import advantages, policy
from steadyrun.tutor.preferences import preferences
from steadyrun.tutor.recipe import Fault, Recipe, adamw
from steadyrun.tutor.tokenizer import BOS_ID, EOS_ID

STEPS = 200


def _fault(name: str, leaf: str, summary: str, change: str, inject: Callable[[Recipe], Recipe]) -> Fault:
    return Fault(name, leaf, summary, change, inject, steps=STEPS)


# Which tokens are learned.


def _masked_answers(tokenizer: Tokenizer, sentences: Sequence[Sentence]) -> Batch:
    """The mask of the labels the wrong way round."""
    batch = collate(tokenizer, sentences)
    prompts = (batch["labels"] == IGNORED) & (batch["attention_mask"] == 1)
    return batch | {"labels": batch["input_ids"].where(prompts, IGNORED)}


def _shortest_prompt(tokenizer: Tokenizer, sentences: Sequence[Sentence]) -> Batch:
    """One length of prompts for the whole batch, that of the shortest: the rest of longer prompts is learned."""
    batch = collate(tokenizer, sentences)
    text = batch["attention_mask"] == 1
    shortest = ((batch["labels"] == IGNORED) & text).sum(dim=1).min()
    learned = text & (torch.arange(text.shape[1]) >= shortest)
    return batch | {"labels": batch["input_ids"].where(learned, IGNORED)}


def _end_as_padding(tokenizer: Tokenizer, sentences: Sequence[Sentence]) -> Batch:
    """Pad with the end of a text, and mask padding by its id: the end is masked as well."""
    batch = collate(tokenizer, sentences)
    ids = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, EOS_ID)
    return batch | {"input_ids": ids, "labels": batch["labels"].masked_fill(ids == EOS_ID, IGNORED)}


def _inject_masked_ends(recipe: Recipe) -> Recipe:
    changed = answers(recipe, _end_as_padding)
    return replace(changed, declares=changed.declares | {"pad_id": EOS_ID})


def _two_starts(tokenizer: Tokenizer, sentences: Sequence[Sentence]) -> Batch:
    """The template and the tokenizer both add a start token."""
    first = {"input_ids": BOS_ID, "labels": IGNORED, "attention_mask": 1}
    batch = collate(tokenizer, sentences)
    return {name: nn.functional.pad(batch[name], (1, 0), value=value) for name, value in first.items()}


# Adapters.


class RandomStart(LoRA):
    """Adapters whose second matrix starts like any other layer."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__(base)
        self.lora_B.reset_parameters()


class Undivided(LoRA):
    """Adapters whose scale is alpha, without the division by their rank."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__(base)
        self.scaling *= self.lora_A.out_features


def _inject_left_out(recipe: Recipe) -> Recipe:
    """Build the optimizer of the model without its adapters."""

    def build(model: nn.Module, config: TutorConfig) -> Optimizer:
        return adamw([parameter for name, parameter in model.named_parameters() if "lora" not in name], config)

    return replace(adapters(recipe), build_optimizer=build)


# Preferences.


def _inject_swapped_pairs(recipe: Recipe) -> Recipe:
    """The loss takes the first half of the batch for the rejected answers."""
    healthy = preferences(recipe)

    def token_losses(model: nn.Module, batch: Batch) -> Tensor:
        names = ("input_ids", "labels")
        turned = {name: batch[name].roll(len(batch[name]) // 2, dims=0) for name in names}
        return healthy.token_losses(model, batch | turned | {"reference": batch["reference"].flip(0)})

    return replace(healthy, token_losses=token_losses)


def _inject_lost_answers(recipe: Recipe) -> Recipe:
    changed = preferences(recipe, beta=0.01)
    return replace(changed, config=replace(changed.config, lr_max=1e-3, lr_min=1e-4))


# Policies.


def _flipped(rewards: Tensor) -> Tensor:
    return -advantages(rewards)


def _without_end(answer: list[int], right: list[int]) -> float:
    """Compare an answer that has an end token with one that has none."""
    return float(answer == right[:-1])


_IN_ORDER = (
    _fault("fine-tuning", "", "the healthy reference run of fine-tuning on answers", "none", answers),
    _fault(
        "masked-answers",
        "M1.1",
        "the mask is the wrong way round: prompts are learned, answers are masked",
        "collate inverts the labels' mask",
        lambda recipe: answers(recipe, _masked_answers),
    ),
    _fault(
        "some-prompts-learned",
        "M1.2",
        "all rows of a batch are masked up to the length of its shortest prompt, so longer prompts are learned in part",
        "collate masks one number of tokens for the whole batch",
        lambda recipe: answers(recipe, _shortest_prompt),
    ),
    _fault(
        "masked-ends",
        "A3.5",
        "padding has the id of the end token and is masked by its id, so no end is learned",
        "collate pads with <eos> and masks all <eos>",
        _inject_masked_ends,
    ),
    _fault(
        "two-starts",
        "M1.4",
        "the template and the tokenizer both add a start token",
        "collate puts another <bos> before each row",
        lambda recipe: answers(recipe, _two_starts),
    ),
    _fault("adapters", "", "the healthy reference run of adapters on a frozen base", "none", adapters),
    _fault(
        "adapters-left-out",
        "L1.1",
        "the optimizer holds the frozen base and none of the adapters",
        "build_optimizer skips parameters with lora in their name",
        _inject_left_out,
    ),
    _fault(
        "adapters-random-start",
        "L1.2",
        "the second matrix of each adapter starts at random values, not at zero",
        "lora_B keeps torch's default initialisation",
        lambda recipe: adapters(recipe, RandomStart),
    ),
    _fault(
        "adapter-scale",
        "L1.3",
        "the scale of the adapters is alpha, not alpha / rank",
        "scaling is not divided by the rank",
        lambda recipe: adapters(recipe, Undivided),
    ),
    _fault(
        "base-trains",
        "L1.4",
        "the base is never frozen, and trains together with its adapters",
        "build_model leaves requires_grad of the base as it is",
        lambda recipe: adapters(recipe, frozen=False),
    ),
    _fault("preferences", "", "the healthy reference run of preference tuning (DPO)", "none", preferences),
    _fault(
        "swapped-pairs",
        "G1.1",
        "the loss takes rejected answers for the chosen ones",
        "token_losses swaps the halves of the batch",
        _inject_swapped_pairs,
    ),
    _fault(
        "lost-answers",
        "G1.2",
        "the learning rate is 50 times too high and beta too low: chosen answers become unlikely as well",
        "beta 0.01 and lr_max 1e-3",
        _inject_lost_answers,
    ),
    _fault("policy", "", "the healthy reference run of reinforcement learning (GRPO)", "none", policy),
    _fault(
        "flipped-advantage",
        "G2.1",
        "advantages have the wrong sign, so right answers become less likely",
        "advantages are baseline minus reward",
        lambda recipe: policy(recipe, compare=_flipped),
    ),
    _fault(
        "groups-without-variance",
        "G2.1",
        "the reward function compares answers with their end token to answers without one: every reward is 0",
        "reward compares with the right answer without <eos>",
        lambda recipe: policy(recipe, reward=_without_end),
    ),
)
TUNING_FAULTS: dict[str, Fault] = {fault.name: fault for fault in _IN_ORDER}
