"""The callback in TRL's trainers, which are Trainers."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from tiny_hf import Texts, arguments, tiny_llama, tiny_tokenizer
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

import steadyrun
from steadyrun.integrations.transformers import SteadyrunCallback

ROOT = Path(__file__).parent.parent.parent


def texts(count: int, seed: int = 0) -> list[str]:
    return [" ".join(f"w{each}" for each in row) for row in Texts(count, seed=seed).ids.tolist()]


def sft(folder: Path, callbacks: list[Any], kind: Any = SFTTrainer, **changes: Any) -> SFTTrainer:
    return kind(
        model=tiny_llama(),
        args=SFTConfig(**arguments(folder, bf16=False, **changes)),
        processing_class=tiny_tokenizer(),
        train_dataset=Dataset.from_dict({"text": texts(256)}),
        eval_dataset=Dataset.from_dict({"text": texts(32, seed=9)}),
        callbacks=callbacks,
    )


def test_supervised_fine_tuning(tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "gradient_accumulation_steps": 2,
        "max_steps": 110,
        "eval_strategy": "steps",
        "eval_steps": 50,
    }
    plain = sft(tmp_path, [], **changes)
    plain.train()
    recorded = sft(tmp_path, [SteadyrunCallback(tmp_path / "run")], **changes)
    recorded.train()
    pairs = zip(plain.model.parameters(), recorded.model.parameters(), strict=True)
    assert all(torch.equal(one, two) for one, two in pairs)
    view = steadyrun.open_run(tmp_path / "run")
    log = [entry for entry in recorded.state.log_history if "loss" in entry]
    np.testing.assert_allclose(view.series("loss").values, [entry["loss"] for entry in log], rtol=1e-6)
    np.testing.assert_allclose(view.series("grad_norm").values, [entry["grad_norm"] for entry in log], rtol=1e-6)
    assert view.series("val_loss").steps.tolist() == [49, 99, 109]
    assert {"mean_token_accuracy", "num_tokens", "eval_mean_token_accuracy"} <= set(view.names())
    assert view.manifest["config"]["trainer"] == "SFTTrainer"
    assert view.events("probe-failed") == []
    assert steadyrun.check(tmp_path / "run").verdict == "healthy"


def test_a_nan_in_fine_tuning_is_found(tmp_path: Path) -> None:
    class Breaking(SFTTrainer):
        def training_step(self, model: Any, *given: Any, **named: Any) -> torch.Tensor:
            if self.state.global_step == 15:
                with torch.no_grad():
                    model.lm_head.weight[3] = math.nan
            return super().training_step(model, *given, **named)

    run = sft(tmp_path, [SteadyrunCallback(tmp_path / "run")], Breaking, max_steps=25)
    run.train()
    assert all(math.isfinite(entry["loss"]) for entry in run.state.log_history if "loss" in entry)
    report = steadyrun.check(tmp_path / "run")
    assert report.leaf is not None
    assert (report.leaf.question.code[:2], report.leaf.answer.step) == ("D1", 15)


def test_preferences(tmp_path: Path) -> None:
    good, bad = texts(96), texts(96, seed=5)
    rows = {
        "prompt": [" ".join(each.split()[:6]) for each in good],
        "chosen": [" " + " ".join(each.split()[6:]) for each in good],
        "rejected": [" " + " ".join(each.split()[6:]) for each in bad],
    }
    run = DPOTrainer(
        model=tiny_llama(),
        ref_model=tiny_llama(),
        args=DPOConfig(**arguments(tmp_path, bf16=False, max_steps=30)),
        processing_class=tiny_tokenizer(),
        train_dataset=Dataset.from_dict(rows),
        callbacks=[SteadyrunCallback(tmp_path / "run")],
    )
    run.train()
    view = steadyrun.open_run(tmp_path / "run")
    assert view.series("loss").values[0] == pytest.approx(math.log(2), abs=1e-5)
    assert "vocab_size" not in view.manifest["config"]  # the loss is none of a choice among tokens
    assert "rewards/margins" in view.names()
    assert view.manifest["config"]["beta"] == 0.1  # from the trainer's arguments
    assert view.events("fault") == view.events("probe-failed") == []


def test_rewards_that_are_all_alike_erase_no_gradient(tmp_path: Path) -> None:
    calls = iter(range(1000))

    def reward(completions: list[str], **_: Any) -> list[float]:
        flat = next(calls) % 5 != 3  # most batches teach nothing
        return [0.0 if flat else float(len(each)) for each in completions]

    run = GRPOTrainer(
        model=tiny_llama(),
        reward_funcs=reward,
        args=GRPOConfig(**arguments(tmp_path, bf16=False, max_steps=24), num_generations=4, max_completion_length=6),
        processing_class=tiny_tokenizer(),
        train_dataset=Dataset.from_dict({"prompt": [" ".join(each.split()[:6]) for each in texts(64)]}),
        callbacks=[SteadyrunCallback(tmp_path / "run")],
    )
    run.train()
    view = steadyrun.open_run(tmp_path / "run")
    norms = view.series("grad_norm").values
    assert 0 < np.sum(norms > 0) < len(norms)
    assert "reward" in view.names()
    report = steadyrun.check(tmp_path / "run")
    assert report.verdict != "fault"


# The Trainer asks for pinned memory by itself, whether there is an accelerator or not.
@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true:UserWarning")
def test_the_example_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "integrations" / "trl.md").read_text()
    (program,) = re.findall(r"```python\n(import torch.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(program, {})
    assert "✓ healthy  experiments/my-run  finished, last step 119" in capsys.readouterr().out
