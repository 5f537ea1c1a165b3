"""Tiny models, data and tokenizers for the tests with Hugging Face libraries, built on the spot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)

from steadyrun.integrations.transformers import SteadyrunCallback

VOCAB = 64


class Texts(Dataset[dict[str, Any]]):
    """Arithmetic sequences with a little noise: a language that a tiny model can learn, and no two texts alike."""

    def __init__(self, count: int = 256, width: int = 16, seed: int = 0) -> None:
        chance = torch.Generator().manual_seed(seed)
        start, stride = (torch.randint(low, high, (count, 1), generator=chance) for low, high in ((0, 60), (1, 4)))
        ids = 4 + (start + stride * torch.arange(width)) % 60
        noise = torch.rand(ids.shape, generator=chance) < 0.1
        self.ids = torch.where(noise, torch.randint(4, VOCAB, ids.shape, generator=chance), ids)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, place: int) -> dict[str, Any]:
        return {"input_ids": self.ids[place], "labels": self.ids[place]}


class Labelled(Texts):
    """The same texts, and whether their first token is in the upper half."""

    def __getitem__(self, place: int) -> dict[str, Any]:
        ids = self.ids[place]
        return {"input_ids": ids, "labels": int(ids[0] >= 34)}


def tiny_gpt(**changes: Any) -> GPT2LMHeadModel:
    set_seed(1)
    size = {"vocab_size": VOCAB, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**(size | {"bos_token_id": 1, "eos_token_id": 1} | changes)))


def tiny_llama(**changes: Any) -> LlamaForCausalLM:
    set_seed(1)
    size = {"vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64}
    return LlamaForCausalLM(LlamaConfig(**(size | heads | {"bos_token_id": 1, "eos_token_id": 1} | changes)))


def tiny_bert(kind: Any = BertForSequenceClassification, **changes: Any) -> Any:
    set_seed(1)
    size = {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    return kind(BertConfig(**(size | {"intermediate_size": 64, "max_position_embeddings": 64} | changes)))


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """A word is a number: "w7 w8 w9"."""
    words = {name: place for place, name in enumerate(["<pad>", "<eos>", "<unk>", "<mask>"])}
    words |= {f"w{place}": place for place in range(4, VOCAB)}
    inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", mask_token="<mask>"
    )


def arguments(folder: Path, **changes: Any) -> dict[str, Any]:
    defaults = {
        "output_dir": str(folder / "output"),
        "per_device_train_batch_size": 8,
        "per_device_eval_batch_size": 8,
        "max_steps": 40,
        "learning_rate": 3e-3,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "seed": 3,
    }
    return defaults | changes


def trainer(folder: Path, model: Any, *, path: Path | None = None, objects: Any = None, **changes: Any) -> Trainer:
    """A Trainer over the tiny texts; with `path`, recorded there."""
    given = {"train_dataset": Texts(), "eval_dataset": Texts(32, seed=9), **(objects or {})}
    given.setdefault("callbacks", [SteadyrunCallback(path)] if path is not None else [])
    kind = given.pop("kind", Trainer)
    return kind(model=model, args=TrainingArguments(**arguments(folder, **changes)), **given)
