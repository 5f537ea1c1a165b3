"""Fine-tuning on exchanges: the prompt is a sentence with its verb in the base form, the answer is the right form.

A healthy program that goes on from a model which has read the sentences, and learns the answers only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from steadyrun.tutor.config import TutorConfig, default_warmup
from steadyrun.tutor.corpus import Sentence, conjugate
from steadyrun.tutor.data import Batch, Data, load_data
from steadyrun.tutor.recipe import Recipe, build_model
from steadyrun.tutor.tokenizer import BOS_ID, EOS_ID, PAD_ID

IGNORED = -100
USER, ASSISTANT = "<|user|>", "<|assistant|>"
_READS, _ANSWERS, _WARMUP = 200, 120, 20  # steps

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Exchange:
    """Token ids of a prompt and of an answer."""

    prompt: list[int]
    answer: list[int]


def exchange(tokenizer: Tokenizer, sentence: Sentence, form: str | None = None) -> Exchange:
    """The exchange about a sentence, answered with its verb phrase or another form."""
    right = conjugate(sentence.verb, sentence.person, sentence.tense)
    text = sentence.text.replace(f" {right} ", f" {sentence.verb} ", 1)
    prompt = [BOS_ID, *tokenizer.encode(f"{USER}{text}{ASSISTANT}").ids]
    return Exchange(prompt, [*tokenizer.encode(form or right).ids, EOS_ID])


def padded(exchanges: Sequence[Exchange]) -> Batch:
    """Rows of tokens, padded at the end; the labels of prompts and padding are masked."""
    rows = [[*each.prompt, *each.answer] for each in exchanges]
    labels = [[IGNORED] * len(each.prompt) + each.answer for each in exchanges]
    return {
        "input_ids": _rows(rows, PAD_ID),
        "labels": _rows(labels, IGNORED),
        "attention_mask": _rows([[1] * len(row) for row in rows], 0),
    }


def _rows(rows: Sequence[Sequence[int]], filling: int) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[filling] * (longest - len(row))] for row in rows])


Collate = Callable[[Tokenizer, Sequence[Sentence]], Batch]


def collate(tokenizer: Tokenizer, sentences: Sequence[Sentence]) -> Batch:
    """A batch of exchanges."""
    return padded([exchange(tokenizer, sentence) for sentence in sentences])


def load_exchanges(make: Collate, config: TutorConfig) -> Data:
    """The sentences, as batches of exchanges."""
    data = load_data(config)
    data.tokenizer.add_special_tokens([USER, ASSISTANT])
    return replace(data, collate=lambda _rows, sentences: make(data.tokenizer, sentences))


def choices(model: nn.Module, batch: Batch) -> Tensor:
    """Log-probabilities of all tokens after each token but the last: shape (rows, length - 1, vocabulary)."""
    logits: Tensor = model(batch["input_ids"][:, :-1])
    return logits.float().log_softmax(dim=-1)


def chosen(choices: Tensor, batch: Batch) -> Tensor:
    """The log-probabilities of the labels, shape (rows, length - 1); zero where the label is masked."""
    labels = batch["labels"][:, 1:]
    flat = nn.functional.nll_loss(choices.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="none")
    return -flat.view_as(labels)


def log_probabilities(model: nn.Module, batch: Batch) -> Tensor:
    """The log-probabilities of the labels, shape (rows, length - 1); zero where the label is masked."""
    return chosen(choices(model, batch), batch)


def token_losses(model: nn.Module, batch: Batch) -> Tensor:
    """Cross-entropy of every answered token."""
    return -log_probabilities(model, batch)


def reduce_loss(losses: Tensor, batch: Batch) -> Tensor:
    """The mean over the learned tokens."""
    return losses.sum() / (batch["labels"][:, 1:] != IGNORED).sum()


def answers(recipe: Recipe, make: Collate = collate) -> Recipe:
    """Fine-tuning of all weights on the answers."""
    return replace(
        recipe,
        config=replace(recipe.config, batch_size=16, warmup_steps=min(_WARMUP, recipe.config.warmup_steps)),
        load_data=partial(load_exchanges, make),
        build_model=lambda config: started(config, _read(_base(config))),
        init_weights=keep,
        token_losses=token_losses,
        reduce_loss=reduce_loss,
        declares={"init": "pretrained", "baseline_loss": None, "bos_id": BOS_ID, "eos_id": EOS_ID},
    )


# Where fine-tuning starts.


def keep(_model: nn.Module) -> None:
    """The model has its weights already."""


def started(config: TutorConfig, weights: Weights) -> nn.Module:
    """A model with given weights."""
    model = build_model(config)
    model.load_state_dict(weights)
    return model


def _base(config: TutorConfig) -> TutorConfig:
    """What all programs with this model, these sentences and this seed start from."""
    usual = TutorConfig(steps=_READS, lr_max=1e-3, batch_size=16, warmup_steps=default_warmup(_READS))
    shape = {name: getattr(config, name) for name in ("vocab_size", "context", "layers", "width", "heads")}
    return replace(usual, seed=config.seed, corpus_seed=config.corpus_seed, device=config.device, **shape)


@lru_cache(maxsize=4)
def _read(config: TutorConfig) -> Weights:
    """Weights of a model that has read the sentences."""
    return _trained(Recipe(config))


@lru_cache(maxsize=4)
def _answered(config: TutorConfig) -> Weights:
    """Weights of a model that has also been fine-tuned on answers, for preferences and policies."""
    return _trained(answers(Recipe(replace(config, steps=_ANSWERS, warmup_steps=default_warmup(_ANSWERS)))))


def answering(config: TutorConfig) -> nn.Module:
    """A model that knows some of the answers."""
    return started(config, _answered(_base(config)))


@lru_cache(maxsize=4)
def _frozen(config: TutorConfig) -> nn.Module:
    return started(config, _answered(config)).requires_grad_(False)


def reference(config: TutorConfig) -> nn.Module:
    """The model that preferences and policies start from, frozen."""
    return _frozen(_base(config))


def _trained(recipe: Recipe) -> Weights:
    from steadyrun.tutor.train import train

    with torch.random.fork_rng():  # whether the weights are at hand must not change the numbers drawn later
        return train(replace(recipe, validates=False)).model.state_dict()
