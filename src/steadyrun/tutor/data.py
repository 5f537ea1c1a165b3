"""Sentences as padded tensors, and their order."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from steadyrun.tutor.baseline import NgramModel
from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.corpus import Sentence, generate
from steadyrun.tutor.tokenizer import PAD_ID, encode, train_tokenizer

Batch = dict[str, Tensor]
"""`tokens` and `targets` of shape (sentences, length), padded at the end; `irregular`, a flag per row."""


def on_device(batch: Batch, config: TutorConfig) -> Batch:
    """The batch on the model's device."""
    return {name: tensor.to(config.device) for name, tensor in batch.items()}


def collate(rows: Sequence[list[int]], sentences: Sequence[Sentence]) -> Batch:
    """Pad to the longest row; the target of each position is the token after it."""
    longest = max(len(row) for row in rows)
    padded = torch.tensor([row + [PAD_ID] * (longest - len(row)) for row in rows])
    irregular = torch.tensor([sentence.verb_class == "irregular" for sentence in sentences])
    return {"tokens": padded[:, :-1], "targets": padded[:, 1:], "irregular": irregular}


@dataclass(frozen=True)
class Data:
    """The training and validation data of a run."""

    tokenizer: Tokenizer
    train: list[list[int]]
    val: list[list[int]]
    train_sentences: list[Sentence]
    val_sentences: list[Sentence]
    collate: Callable[[Sequence[list[int]], Sequence[Sentence]], Batch] = collate

    def train_batch(self, indices: Sequence[int]) -> Batch:
        """The training sentences at `indices`."""
        return self.collate([self.train[i] for i in indices], [self.train_sentences[i] for i in indices])

    def val_batch(self) -> Batch:
        """All validation sentences in one batch."""
        return self.collate(self.val, self.val_sentences)

    def baseline_loss(self) -> float:
        """Validation loss, in nats per token, of an n-gram model fitted on the training sentences."""
        return NgramModel(self.train, self.tokenizer.get_vocab_size()).loss(self.val)


def load_data(config: TutorConfig) -> Data:
    """Generate the corpus, train the tokenizer on its training half, and encode both halves."""
    train, val = generate(config.corpus_seed)
    tokenizer = train_tokenizer((sentence.text for sentence in train), config.vocab_size)
    encoded = [[encode(tokenizer, sentence.text) for sentence in part] for part in (train, val)]
    return Data(tokenizer, encoded[0], encoded[1], train, val)


def batch_order(data: Data, config: TutorConfig) -> Iterator[list[int]]:
    """Endless batches of sentence indices, reshuffled every epoch, without incomplete batches."""
    # A separate generator, so that dropout or a larger model does not change the order.
    generator = torch.Generator().manual_seed(config.seed)
    size = config.batch_size
    while True:
        order = torch.randperm(len(data.train), generator=generator).tolist()
        for start in range(0, len(order) - size + 1, size):
            yield order[start : start + size]
