"""GRPO by TRL's GRPOTrainer with a reward written in Python, with our callback."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import LlamaForCausalLM
from trl import GRPOConfig, GRPOTrainer

import steadyrun
from diagnosis.fifth.chats import Chat, base, chats, completions, tokenizer_of
from diagnosis.fifth.loop import declared
from diagnosis.fifth.trainers import arguments, callbacks, run_through
from diagnosis.harness import Config, Log, Record

WANTED = {"green", "blue", "white", "grey"}


def worth(text: str) -> float:
    """Answers should name a colour of the sea, begin politely, and be one sentence."""
    words = text.split()
    return (
        0.5 * any(word in WANTED for word in words) + 0.3 * (words[:1] == ["sure"]) + 0.2 * (text.strip().endswith("."))
    )


def reward_of(config: Config) -> Any:
    bug = config["bug"]

    def reward(completions: list[Any], **_: Any) -> list[float]:
        texts = [each[0]["content"] if isinstance(each, list) else each for each in completions]
        found = [worth(text) for text in texts]
        if config["only_colour"]:
            found = [float(any(word in WANTED for word in text.split())) for text in texts]
        if bug == "reward-negated":
            return [-each for each in found]
        if bug == "reward-never-given":  # it looks for a tag that no answer has
            return [float("<answer>" in text) for text in texts]
        if bug == "rewards-of-other-answers":
            return found[1:] + found[:1]
        if bug == "longer-is-better":
            return [float(len(text.split())) for text in texts]
        return found

    reward.__name__ = "worth"
    return reward


def dataset(known: list[Chat]) -> Dataset:
    return Dataset.from_dict({"prompt": [[{"role": "user", "content": question}] for question, _ in known]})


def quality(model: Any, held_out: list[Chat]) -> float:
    """The mean reward of the likeliest answers, on held-out questions."""
    tokenizer = tokenizer_of()
    texts = [tokenizer.decode(row, skip_special_tokens=True) for row in completions(model, held_out)]
    return sum(map(worth, texts)) / len(texts)


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 45, "lr_max": 1e-3, "batch_size": 32, "rows": 736, "beta": 0.02, "schedule": "constant"}
    own |= {"group": 8, "longest": 14, "temperature": 1.0, "logging": 1, "only_colour": False, "scale": "group"}
    own |= {"min_p": None}
    chosen: dict[str, Config] = {
        "temperature-of-0.05": {"temperature": 0.05},
        "answers-cut": {"longest": 3},
        "beta-of-20": {"beta": 20.0},
    }
    return declared("grpo_trl", bug, seed, changes, **own) | chosen.get(bug or "", {})


def train(
    folder: Path, bug: str | None = None, seed: int = 1, *, record: Record = steadyrun.record, **changes: Any
) -> Log:
    config = configure(bug, seed, **changes)
    torch.manual_seed(seed)
    with tempfile.TemporaryDirectory() as saved:  # TRL loads the reference from where the model came from
        base(ends=True).save_pretrained(saved)
        model = LlamaForCausalLM.from_pretrained(saved)
        return _trained(model, config, folder, record)


def _trained(model: Any, config: Config, folder: Path, record: Record) -> Log:
    seed = config["seed"]
    known, held_out = chats("before", seed)
    settings = GRPOConfig(
        **arguments(config),
        beta=config["beta"],
        num_generations=config["group"],
        max_completion_length=config["longest"],
        temperature=config["temperature"],
        scale_rewards=config["scale"],
    )
    trainer = GRPOTrainer(
        model,
        reward_funcs=reward_of(config),
        args=settings,
        processing_class=tokenizer_of(),
        train_dataset=dataset(known[: config["rows"]]),
        callbacks=callbacks(folder, config, record),
    )
    return run_through(trainer, folder, lambda: quality(model, held_out))
