"""Byte-pair encoding, trained on the training sentences."""

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
PAD_ID, BOS_ID, EOS_ID = 0, 1, 2

# Rarer pairs are not merged, so that endings such as -ed and -s stay separate tokens.
MIN_FREQUENCY = 8


def train_tokenizer(texts: Iterable[str], vocab_size: int = 512) -> Tokenizer:
    """Train a tokenizer with at most `vocab_size` entries; deterministic for the same texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()])
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=MIN_FREQUENCY,
        special_tokens=[PAD, BOS, EOS],
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """Token ids of a sentence between <bos> and <eos>."""
    return [BOS_ID, *tokenizer.encode(text).ids, EOS_ID]
