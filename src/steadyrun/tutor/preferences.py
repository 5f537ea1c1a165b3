"""Preferences (DPO): pairs of the right and a wrong verb form, against a frozen copy of the model at the start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from steadyrun.tutor.corpus import TENSES, Sentence, conjugate
from steadyrun.tutor.data import Batch
from steadyrun.tutor.exchanges import Collate, answering, answers, exchange, log_probabilities, padded, reference
from steadyrun.tutor.recipe import Recipe

BETA = 0.3


def pairs(tokenizer: Tokenizer, sentences: Sequence[Sentence]) -> Batch:
    """The chosen answers, then the rejected ones: the same verb in the next tense."""
    wrong = [conjugate(each.verb, each.person, _next(each.tense)) for each in sentences]
    chosen = [exchange(tokenizer, each) for each in sentences]
    return padded(chosen + [exchange(tokenizer, each, form) for each, form in zip(sentences, wrong, strict=True)])


def _next(tense: str) -> str:
    return TENSES[(TENSES.index(tense) + 1) % len(TENSES)]


def answer_log_probabilities(model: nn.Module, batch: Batch) -> Tensor:
    """Of each whole answer: shape (2, pairs)."""
    return log_probabilities(model, batch).sum(dim=1).view(2, -1)


def implicit_rewards(model: nn.Module, batch: Batch, beta: float) -> Tensor:
    """What the model has gained on its reference, of chosen and rejected answers."""
    return beta * (answer_log_probabilities(model, batch) - batch["reference"])


def preferences(recipe: Recipe, make: Collate = pairs, *, beta: float = BETA) -> Recipe:
    """Preference tuning of a model that knows some of the answers."""
    tuned = answers(recipe, make)

    def prepare(_model: nn.Module, batch: Batch) -> Batch:
        with torch.no_grad():
            return batch | {"reference": answer_log_probabilities(reference(tuned.config), batch)}

    def token_losses(model: nn.Module, batch: Batch) -> Tensor:
        chosen, rejected = implicit_rewards(model, batch, beta)
        return -nn.functional.logsigmoid(chosen - rejected)

    @torch.no_grad()
    def measure(model: nn.Module, batch: Batch) -> dict[str, float]:
        logps, (chosen, rejected) = answer_log_probabilities(model, batch), implicit_rewards(model, batch, beta)
        numbers = {
            "rewards/chosen": chosen,
            "rewards/rejected": rejected,
            "rewards/margins": chosen - rejected,
            "rewards/accuracies": (chosen > rejected).float(),
            "logps/chosen": logps[0],
            "logps/rejected": logps[1],
        }
        return {name: values.mean().item() for name, values in numbers.items()}

    return replace(
        tuned,
        config=replace(tuned.config, batch_size=8, lr_max=2e-5, lr_min=2e-6),
        build_model=answering,
        prepare=prepare,
        token_losses=token_losses,
        reduce_loss=lambda losses, _batch: losses.mean(),
        measure=measure,
    )
