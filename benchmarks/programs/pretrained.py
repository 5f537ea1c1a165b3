"""A mini-GPT that already knows its sentences, and new sentences to tune it on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from steadyrun.tutor.corpus import Sentence, generate
from steadyrun.tutor.data import Batch, collate, load_data
from steadyrun.tutor.faults import load_recipe
from steadyrun.tutor.tokenizer import encode
from steadyrun.tutor.train import train

PRETRAINING = 1000


@dataclass(frozen=True)
class NewSentences:
    """Sentences of another corpus in the tokens of the pretrained model."""

    rows: list[list[int]]
    sentences: list[Sentence]

    def batch(self, chosen: Tensor) -> Batch:
        return collate([self.rows[i] for i in chosen], [self.sentences[i] for i in chosen])


@cache
def _weights(seed: int) -> dict[str, Tensor]:
    return train(load_recipe(steps=PRETRAINING, seed=seed)).model.state_dict()


def pretrained_gpt(seed: int) -> nn.Module:
    """Trained on corpus 0."""
    recipe = load_recipe(steps=PRETRAINING, seed=seed)
    model = recipe.build_model(recipe.config)
    model.load_state_dict(_weights(seed))
    torch.manual_seed(seed)
    return model


def new_sentences(corpus_seed: int) -> tuple[NewSentences, NewSentences]:
    """The training and the validation sentences of another corpus."""
    tokenizer = load_data(load_recipe().config).tokenizer
    train_half, val_half = (
        NewSentences([encode(tokenizer, sentence.text) for sentence in half], half) for half in generate(corpus_seed)
    )
    return train_half, val_half
