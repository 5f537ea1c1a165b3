"""Adapters by PEFT in TRL's trainer, and preferences and policies by TRL: healthy ones, and bugs that people write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from test_trl import texts
from tiny_hf import arguments, tiny_llama, tiny_tokenizer
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

import steadyrun
from steadyrun.integrations.transformers import SteadyrunCallback


def lora(**changes: Any) -> LoraConfig:
    return LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM", **changes)


def adapted(folder: Path, prepare: Callable[[Any], None] = lambda _: None, **changes: Any) -> steadyrun.Report:
    """Fine-tune adapters on a tiny model; `prepare` is what the program does with it before."""
    model = get_peft_model(tiny_llama(), lora(**changes))
    prepare(model)
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(**arguments(folder, bf16=False, max_steps=110, learning_rate=5e-3)),
        processing_class=tiny_tokenizer(),
        train_dataset=Dataset.from_dict({"text": texts(256)}),
        callbacks=[SteadyrunCallback(folder / "run")],
    )
    trainer.train()
    return steadyrun.check(folder / "run")


def codes(report: steadyrun.Report) -> set[str]:
    found = [*report.suspects, *([report.headline] if report.headline else [])]
    return {f"{asked.question.code} {asked.answer.outcome}" for asked in found}


@pytest.mark.parametrize("changes", [{}, {"use_dora": True}, {"modules_to_save": ["lm_head", "embed_tokens"]}])
def test_healthy_adapters_are_quiet(tmp_path: Path, changes: dict[str, Any]) -> None:
    report = adapted(tmp_path, **changes)
    assert not {code for code in codes(report) if code.startswith("L")}, str(report)
    assert report.verdict != "fault"
    assert steadyrun.open_run(tmp_path / "run").manifest["adapters"]["scale"] == [2.0, 2.0]


def frozen(model: Any) -> None:
    model.requires_grad_(False)
    model.get_input_embeddings().requires_grad_(True)  # else there is nothing to train at all


def merged(model: Any) -> None:
    model.merge_adapter()


def open_base(model: Any) -> None:
    model.requires_grad_(True)


def loud(model: Any) -> None:
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)


@pytest.mark.parametrize(
    ("prepare", "code"),
    [(frozen, "L1.1 frozen"), (merged, "L1.1 merged"), (open_base, "L1.4 trains"), (loud, "L1.2 not-zero")],
)
def test_broken_adapters_are_found(tmp_path: Path, prepare: Callable[[Any], None], code: str) -> None:
    report = adapted(tmp_path, prepare)
    assert code in codes(report), str(report)


def preferences(folder: Path, rate: float = 1e-3) -> steadyrun.Report:
    good = texts(96)
    prompts, endings = [each.split()[:6] for each in good], [each.split()[6:] for each in good]
    better = [" " + " ".join(words) for words in endings]
    worse = [" " + " ".join(reversed(words)) for words in endings]
    rows = {"prompt": [" ".join(words) for words in prompts], "chosen": better, "rejected": worse}
    trainer = DPOTrainer(
        model=tiny_llama(),
        ref_model=tiny_llama(),
        args=DPOConfig(**arguments(folder, bf16=False, max_steps=60, learning_rate=rate)),
        processing_class=tiny_tokenizer(),
        train_dataset=Dataset.from_dict(rows),
        callbacks=[SteadyrunCallback(folder / "run")],
    )
    trainer.train()
    return steadyrun.check(folder / "run")


def test_healthy_preferences_are_quiet(tmp_path: Path) -> None:
    report = preferences(tmp_path)
    assert not {code for code in codes(report) if code.startswith("G")}, str(report)
    assert report.verdict in {"healthy", "cannot-tell"}, str(report)


@pytest.mark.parametrize(("rate", "code"), [(0.0, "G1.1 flat"), (0.1, "G1.2 collapse")])
def test_broken_preferences_are_found(tmp_path: Path, rate: float, code: str) -> None:
    report = preferences(tmp_path, rate)
    assert code in codes(report), str(report)


def policy(folder: Path, reward: Callable[..., list[float]], rate: float = 5e-3, steps: int = 60) -> steadyrun.Report:
    sampling = {"num_generations": 4, "max_completion_length": 6}
    trainer = GRPOTrainer(
        model=tiny_llama(),
        reward_funcs=reward,
        args=GRPOConfig(**arguments(folder, bf16=False, max_steps=steps, learning_rate=rate), **sampling),
        processing_class=tiny_tokenizer(),
        train_dataset=Dataset.from_dict({"prompt": [" ".join(each.split()[:6]) for each in texts(64)]}),
        callbacks=[SteadyrunCallback(folder / "run")],
    )
    trainer.train()
    return steadyrun.check(folder / "run")


def even_words(completions: list[str], **_: Any) -> list[float]:
    """The fraction of words with an even number: easy to learn, and different for every answer."""
    numbers = [[int(word[1:]) for word in each.split() if word[1:].isdigit()] for each in completions]
    return [sum(n % 2 == 0 for n in words) / max(1, len(words)) for words in numbers]


def test_a_healthy_policy_is_quiet(tmp_path: Path) -> None:
    report = policy(tmp_path, even_words)
    assert not {code for code in codes(report) if code.startswith("G")}, str(report)
    assert report.verdict != "fault", str(report)


def test_a_reward_that_is_always_the_same_is_found(tmp_path: Path) -> None:
    report = policy(tmp_path, lambda completions, **_: [0.0] * len(completions), steps=30)
    assert "G2.1 all-wrong" in codes(report), str(report)


def test_a_policy_with_a_reversed_reward_and_a_high_rate_is_suspect(tmp_path: Path) -> None:
    report = policy(tmp_path, lambda completions, **_: [-x for x in even_words(completions)], rate=0.1)
    assert report.verdict in {"suspect", "fault"}, str(report)
