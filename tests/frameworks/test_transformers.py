"""The callback in a real Trainer: what it records is what happened, and nothing else changes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_hf import VOCAB, Labelled, Texts, tiny_bert, tiny_gpt, tiny_llama, tiny_tokenizer, trainer
from torch import nn
from transformers import (
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    Trainer,
)

import steadyrun
from steadyrun.integrations.transformers import SteadyrunCallback

ROOT = Path(__file__).parent.parent.parent
pytestmark = [
    # torch's scheduler is told of an optimizer inside of accelerate's wrapper.
    pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step:UserWarning"),
]


def logged(run: Trainer, name: str) -> list[float]:
    return [entry[name] for entry in run.state.log_history if name in entry]


def faults(path: Path) -> list[str]:
    found = steadyrun.check(path)
    return [
        f"{asked.question.code} {asked.answer.outcome}" for asked in found.walk.path if asked.answer.kind == "fault"
    ]


def same_weights(one: nn.Module, two: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


# -- what is recorded -----------------------------------------------------------------------------


@pytest.mark.parametrize("accumulation", [1, 3])
def test_nothing_changes_and_every_step_is_what_the_trainer_says(tmp_path: Path, accumulation: int) -> None:
    # 256 texts in batches of 8 are 32 micro-batches: with 3 of them per step, the last step of an epoch has 2.
    changes: dict[str, Any] = {"gradient_accumulation_steps": accumulation, "warmup_steps": 5, "eval_steps": 10}
    plain = trainer(tmp_path, tiny_gpt(), eval_strategy="steps", **changes)
    plain.train()
    state = torch.get_rng_state()
    recorded = trainer(tmp_path, tiny_gpt(), path=tmp_path / "run", eval_strategy="steps", **changes)
    recorded.train()
    assert same_weights(plain.model, recorded.model)
    assert torch.equal(state, torch.get_rng_state())
    assert logged(plain, "loss") == logged(recorded, "loss")

    view = steadyrun.open_run(tmp_path / "run")
    assert view.state == "finished"
    assert view.events("probe-failed") == []
    assert view.series("loss").steps.tolist() == list(range(40))
    for ours, theirs in (("loss", "loss"), ("grad_norm", "grad_norm"), ("lr/0", "learning_rate")):
        np.testing.assert_allclose(view.series(ours).values, logged(recorded, theirs), rtol=1e-6)
    np.testing.assert_array_equal(view.series("val_loss").values, logged(recorded, "eval_loss"))
    assert view.series("val_loss").steps.tolist() == [9, 19, 29, 39]
    backwards = view.series("backwards").values
    assert backwards[10] == (1 if accumulation == 1 else 2)
    assert backwards[0] == accumulation
    assert view.series("examples").values[0] == 8 * accumulation
    assert set(view.series("clip_threshold").values) == {1.0}
    assert {"activation/transformer.h.0", "attention_entropy/transformer.h.0", "moment2_norm/0"} <= set(view.names())


def test_the_loss_is_that_of_a_loop_by_hand(tmp_path: Path) -> None:
    """Texts of unequal length: a step's loss is the mean over all tokens of its three micro-batches."""
    tokenizer = tiny_tokenizer()
    rows = [{"input_ids": Texts().ids[place, : 5 + place % 11].tolist()} for place in range(48)]
    collate = DataCollatorForLanguageModeling(tokenizer, mlm=False)
    objects = {"train_dataset": rows, "data_collator": collate}
    changes: dict[str, Any] = {"gradient_accumulation_steps": 3, "max_steps": 2, "lr_scheduler_type": "constant"}
    changes["train_sampling_strategy"] = "sequential"
    trainer(tmp_path, tiny_llama(), path=tmp_path / "run", objects=objects, **changes).train()

    by_hand = tiny_llama()
    optimizer = torch.optim.AdamW(by_hand.parameters(), lr=3e-3, weight_decay=0.0)
    expected = []
    for step in range(2):
        batches = [collate(rows[8 * place : 8 * place + 8]) for place in range(3 * step, 3 * step + 3)]
        total = sum(int((batch["labels"][:, 1:] != -100).sum()) for batch in batches)
        loss = torch.zeros(())
        for batch in batches:
            labels = batch.pop("labels")[:, 1:].reshape(-1)
            scores = by_hand(**batch).logits[:, :-1].reshape(-1, VOCAB)
            loss = loss + nn.functional.cross_entropy(scores, labels, reduction="sum") / total
        loss.backward()
        torch.nn.utils.clip_grad_norm_(by_hand.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        expected.append(loss.item())
    np.testing.assert_allclose(steadyrun.open_run(tmp_path / "run").series("loss").values, expected, rtol=1e-5)


def test_what_is_declared(tmp_path: Path) -> None:
    callback = SteadyrunCallback(tmp_path / "run", config={"causal": False, "dataset": "tiny"})
    changes: dict[str, Any] = {"weight_decay": 0.1, "warmup_steps": 3, "lr_scheduler_type": "cosine", "bf16": True}
    objects = {"callbacks": [callback], "processing_class": tiny_tokenizer()}
    trainer(tmp_path, tiny_gpt(), objects=objects, max_steps=6, **changes).train()
    config = steadyrun.open_run(tmp_path / "run").manifest["config"]
    assert config == {
        "seed": 3,
        "total_steps": 6,
        "accumulation": 1,
        "batch_size": 8,
        "clip": 1.0,
        "dtype": "bf16",
        "lr_max": 3e-3,
        "schedule": "cosine",
        "warmup_steps": 3,
        "lr_min": 0.0,
        "weight_decay": 0.1,
        "no_decay": ["bias"],
        "model": "GPT2LMHeadModel",
        "trainer": "Trainer",
        "vocab_size": VOCAB,
        "causal": False,
        "pad_id": 0,
        "eos_id": 1,
        "shuffle": True,
        "dataset": "tiny",
    }


def test_an_optimizer_of_ones_own_makes_its_arguments_mean_nothing(tmp_path: Path) -> None:
    model = tiny_gpt()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    objects = {"optimizers": (optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 10))}
    trainer(tmp_path, model, path=tmp_path / "run", objects=objects, max_steps=12, weight_decay=0.3).train()
    view = steadyrun.open_run(tmp_path / "run")
    assert not {"lr_max", "schedule", "warmup_steps", "weight_decay", "no_decay"} & set(view.manifest["config"])
    assert view.manifest["param_groups"][0]["class"] == "SGD"
    np.testing.assert_allclose(view.series("lr/0").values, [0.1] * 10 + [0.01] * 2)


def test_several_datasets_and_other_scalars(tmp_path: Path) -> None:
    class Telling(Trainer):
        def log(self, logs: dict[str, float], *rest: Any) -> None:
            super().log({**logs, "rewards/margin": 0.25, "step": 7.0} if "loss" in logs else logs, *rest)

    held_out = {"train": Texts(16), "b": Texts(16, seed=9), "c": Texts(16, seed=10)}
    objects = {"eval_dataset": held_out, "kind": Telling, "compute_metrics": lambda _: {"accuracy": 0.5}}
    changes: dict[str, Any] = {"eval_strategy": "steps", "eval_steps": 4, "eval_on_start": True, "max_steps": 8}
    run = trainer(tmp_path, tiny_gpt(), path=tmp_path / "run", objects=objects, **changes)
    run.train()
    view = steadyrun.open_run(tmp_path / "run")
    assert view.series("val_loss").steps.tolist() == [0, 3, 7]
    np.testing.assert_array_equal(view.series("val_loss").values, logged(run, "eval_b_loss"))
    assert view.series("eval_c_loss").values[-1] == logged(run, "eval_c_loss")[-1]
    assert view.series("eval_train_loss").values[-1] == logged(run, "eval_train_loss")[-1]
    assert view.series("eval_b_accuracy").values[-1] == 0.5
    assert set(view.series("rewards/margin").values) == {0.25}
    assert set(view.series("logged_step").values) == {7.0}
    assert view.series("loss").steps.tolist() == list(range(8))


# torch's compiler looks at gradients of tensors that have none, and warns of it itself.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_a_model_that_is_compiled_is_recorded_from_outside(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"torch_compile": True, "torch_compile_backend": "eager", "max_steps": 6}
    trainer(tmp_path, tiny_gpt(), path=tmp_path / "run", **changes).train()
    view = steadyrun.open_run(tmp_path / "run")
    assert view.manifest["model"]["compiled"] is True
    assert len(view.series("loss").values) == len(view.series("grad_norm").values) == 6
    assert not any(name.startswith("activation/") for name in view.names())
    assert view.events("probe-failed") == []


# -- beginning and end ----------------------------------------------------------------------------


def test_a_resumed_training_goes_on_in_its_run(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"save_strategy": "steps", "save_steps": 10}
    whole = trainer(tmp_path / "whole", tiny_gpt(), **changes)
    whole.train()

    class Stopping(Trainer):
        def training_step(self, *given: Any, **named: Any) -> torch.Tensor:
            if self.state.global_step == 23:
                raise RuntimeError("the node went away")
            return super().training_step(*given, **named)

    first = trainer(tmp_path, tiny_gpt(), path=tmp_path / "run", objects={"kind": Stopping}, **changes)
    with pytest.raises(RuntimeError, match="the node went away"):
        first.train()
    view = steadyrun.open_run(tmp_path / "run")
    assert view.state == "crashed"
    assert view.manifest["failure"]["message"] == "the node went away"
    assert [event.fields["path"][-13:] for event in view.events("checkpoint")] == ["checkpoint-10", "checkpoint-20"]

    second = trainer(tmp_path, tiny_gpt(), path=tmp_path / "run", **changes)
    second.train(resume_from_checkpoint=True)
    assert same_weights(whole.model, second.model)
    view = steadyrun.open_run(tmp_path / "run")
    (seam,) = view.events("resume")
    assert (seam.step, seam.fields["after_step"]) == (20, 22)
    assert view.series("loss").steps.tolist() == list(range(40))
    np.testing.assert_allclose(view.series("loss").values, logged(whole, "loss"), rtol=1e-6)
    assert not (tmp_path / "run-2").exists()
    assert faults(tmp_path / "run") == []


def test_each_training_has_a_run_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trainer(tmp_path, tiny_gpt(), path=tmp_path / "run", max_steps=5)
    own = run.training_step
    run.train()
    run.train()
    assert "is recorded into" in capsys.readouterr().err
    assert run.training_step == own  # the method of the class again
    views = [steadyrun.open_run(tmp_path / name) for name in ("run", "run-2")]
    assert [view.state for view in views] == ["finished", "finished"]
    assert [view.series("loss").steps.tolist() for view in views] == [list(range(5))] * 2
    assert views[0].series("loss").values[-1] != views[1].series("loss").values[-1]


def test_a_checkpoint_from_elsewhere_is_no_beginning(tmp_path: Path) -> None:
    trainer(tmp_path, tiny_gpt(), max_steps=30, save_strategy="steps", save_steps=25).train()
    second = trainer(tmp_path, tiny_gpt(), path=tmp_path / "run", max_steps=30)
    second.train(resume_from_checkpoint=str(tmp_path / "output" / "checkpoint-25"))
    view = steadyrun.open_run(tmp_path / "run")
    assert view.series("loss").steps.tolist() == list(range(25, 30))
    assert view.manifest["config"]["init"] == "pretrained"


def test_an_interrupted_training_is_no_finished_one(tmp_path: Path) -> None:
    class Impatient(Trainer):
        def evaluate(self, *given: Any, **named: Any) -> dict[str, float]:
            raise KeyboardInterrupt

    changes: dict[str, Any] = {"eval_strategy": "steps", "eval_steps": 5}
    with pytest.raises(KeyboardInterrupt):
        trainer(tmp_path, tiny_gpt(), path=tmp_path / "run", objects={"kind": Impatient}, **changes).train()
    view = steadyrun.open_run(tmp_path / "run")
    assert view.state == "crashed"
    assert view.series("loss").steps.tolist() == list(range(5))


def test_evaluation_before_training_and_predictions_anywhere(tmp_path: Path) -> None:
    run = trainer(tmp_path, tiny_gpt(), path=tmp_path / "run", max_steps=5)
    before = run.evaluate()
    run.predict(Texts(8, seed=4))
    run.train()
    run.predict(Texts(8, seed=4))
    run.evaluate()
    view = steadyrun.open_run(tmp_path / "run")
    assert view.series("val_loss").steps.tolist() == [0]
    assert view.series("val_loss").values.tolist() == [before["eval_loss"]]
    assert not (tmp_path / "run-2").exists()


def test_the_default_folder_is_in_the_output(tmp_path: Path) -> None:
    trainer(tmp_path, tiny_gpt(), objects={"callbacks": [SteadyrunCallback]}, max_steps=3).train()
    assert steadyrun.open_run(tmp_path / "output" / "steadyrun").state == "finished"


def test_bad_options_are_refused_at_once() -> None:
    with pytest.raises(steadyrun.UsageError, match="no option 'evry'"):
        SteadyrunCallback("run", evry=3)
    with pytest.raises(steadyrun.UsageError, match="lr_max must be a number"):
        SteadyrunCallback("run", config={"lr_max": "fast"})


# -- healthy trainings ----------------------------------------------------------------------------


def frozen_backbone() -> nn.Module:
    model = tiny_bert()
    for parameter in model.bert.parameters():
        parameter.requires_grad_(False)
    return model


def words(count: int, seed: int = 0) -> list[dict[str, list[int]]]:
    ids = Texts(count, seed=seed).ids
    return [{"input_ids": [*ids[place, : 11 + place % 5].tolist(), 1]} for place in range(count)]


def healthy() -> Iterator[Any]:
    tokenizer = tiny_tokenizer()
    classes = {"train_dataset": Labelled(), "eval_dataset": Labelled(32, seed=9)}
    texts = {"train_dataset": words(256), "eval_dataset": words(32, 9), "processing_class": tokenizer}
    causal = texts | {"data_collator": DataCollatorForLanguageModeling(tokenizer, mlm=False)}
    masked = texts | {"data_collator": DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.3)}
    yield pytest.param(tiny_gpt, {}, {"weight_decay": 0.1}, id="causal-from-scratch")
    yield pytest.param(tiny_llama, {}, {"bf16": True, "lr_scheduler_type": "cosine"}, id="llama-bf16")
    yield pytest.param(tiny_gpt, causal, {"gradient_accumulation_steps": 2}, id="collator-causal")
    yield pytest.param(lambda: tiny_bert(BertForMaskedLM), masked, {}, id="collator-masked")
    yield pytest.param(tiny_bert, classes, {"label_smoothing_factor": 0.1}, id="classifier-smoothed")
    yield pytest.param(frozen_backbone, classes, {}, id="frozen-backbone")
    yield pytest.param(tiny_gpt, {}, {"max_grad_norm": 0.0, "optim": "sgd", "learning_rate": 0.3}, id="no-clipping")


@pytest.mark.parametrize(("build", "objects", "changes"), list(healthy()))
def test_a_healthy_training_has_no_fault(tmp_path: Path, build: Any, objects: Any, changes: Any) -> None:
    every: dict[str, Any] = {"max_steps": 120, "eval_strategy": "steps", "eval_steps": 30}
    trainer(tmp_path, build(), path=tmp_path / "run", objects=objects, **every | changes).train()
    view = steadyrun.open_run(tmp_path / "run")
    assert faults(tmp_path / "run") == []
    assert view.events("fault") == view.events("probe-failed") == []
    report = steadyrun.check(tmp_path / "run")
    assert report.suspects == ()
    assert report.verdict == ("cannot-tell" if report.amber else "healthy")
    assert {sign.code for sign in report.amber} <= {"V1.1", "V1.2"}, "120 steps may be too few to learn anything"
    assert ("clip_threshold" in view.names()) == (changes.get("max_grad_norm") != 0.0)


# -- bugs -----------------------------------------------------------------------------------------


def test_a_nan_that_the_trainer_hides(tmp_path: Path) -> None:
    class Breaking(Trainer):
        def compute_loss(self, *given: Any, **named: Any) -> Any:
            return super().compute_loss(*given, **named) * (math.nan if self.state.global_step == 30 else 1)

    run = trainer(tmp_path, tiny_gpt(), path=tmp_path / "run", objects={"kind": Breaking})
    run.train()
    assert all(math.isfinite(loss) for loss in logged(run, "loss"))  # the Trainer's log shows nothing
    loss = steadyrun.open_run(tmp_path / "run").series("loss")
    assert np.flatnonzero(~np.isfinite(loss.values)).tolist() == list(range(30, 40))
    report = steadyrun.check(tmp_path / "run")
    assert report.verdict == "fault"
    assert report.leaf is not None
    assert (report.leaf.question.code[:2], report.leaf.answer.step) == ("D1", 30)


def test_a_fault_ends_the_training_where_that_is_asked_for(tmp_path: Path) -> None:
    class Exploding(Trainer):
        def compute_loss(self, *given: Any, **named: Any) -> Any:
            return super().compute_loss(*given, **named) * (math.inf if self.state.global_step == 12 else 1)

    callback = SteadyrunCallback(tmp_path / "run", on_fault="stop")
    run = trainer(tmp_path, tiny_gpt(), objects={"kind": Exploding, "callbacks": [callback]})
    with pytest.raises(steadyrun.FaultFound):
        run.train()
    assert run.state.global_step < 20
    view = steadyrun.open_run(tmp_path / "run")
    assert view.state == "stopped"


def test_labels_shifted_twice(tmp_path: Path) -> None:
    class Shifted(Texts):
        def __getitem__(self, place: int) -> dict[str, Any]:
            ids = self.ids[place]
            return {"input_ids": ids[:-1], "labels": ids[1:]}

    trainer(tmp_path, tiny_gpt(), path=tmp_path / "run", objects={"train_dataset": Shifted()}).train()
    assert "A3.3 shifted-twice" in faults(tmp_path / "run")


def test_a_causal_mask_that_is_off(tmp_path: Path) -> None:
    model = tiny_llama()
    seeing_all = model.model.forward

    def forward(*given: Any, **named: Any) -> Any:
        rows, width = named["input_ids"].shape
        named["attention_mask"] = torch.zeros(rows, 1, width, width)
        return seeing_all(*given, **named)

    model.model.forward = forward
    trainer(tmp_path, model, path=tmp_path / "run", max_steps=60).train()
    assert "S1.1 sees-the-answer" in faults(tmp_path / "run")


def test_an_optimizer_without_a_part_of_the_model(tmp_path: Path) -> None:
    model = tiny_bert()
    optimizer = torch.optim.AdamW(model.bert.parameters(), lr=3e-3)  # the head is left out
    objects = {"train_dataset": Labelled(), "eval_dataset": Labelled(32, seed=9), "optimizers": (optimizer, None)}
    callback = SteadyrunCallback(tmp_path / "run", config={"init": "random"})
    trainer(tmp_path, model, objects=objects | {"callbacks": [callback]}).train()
    assert "A4.1 left-out" in faults(tmp_path / "run")


def test_micro_batches_that_are_summed(tmp_path: Path) -> None:
    """A model that takes the number of tokens and does nothing with it: the Trainer then divides by nothing."""

    class Summing(Trainer):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.model_accepts_loss_kwargs = True

        def compute_loss(self, model: nn.Module, inputs: Any, *_: Any, **named: Any) -> Any:
            loss = model(**inputs).loss
            return (loss, {}) if named.get("return_outputs") else loss

    changes: dict[str, Any] = {
        "gradient_accumulation_steps": 4,
        "max_steps": 60,
        "eval_strategy": "steps",
        "eval_steps": 10,
    }
    data = {"train_dataset": Labelled(), "eval_dataset": Labelled(32, seed=9), "kind": Summing}
    run = trainer(tmp_path, tiny_bert(), path=tmp_path / "run", objects=data, **changes)
    run.train()
    loss = steadyrun.open_run(tmp_path / "run").series("loss").values
    np.testing.assert_allclose(loss, np.array(logged(run, "loss")) / 4, rtol=1e-5)
    assert faults(tmp_path / "run") == ["C6.3 not-divided"]


# -- the page -------------------------------------------------------------------------------------


# The Trainer asks for pinned memory by itself, whether there is an accelerator or not.
@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true:UserWarning")
def test_the_example_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "integrations" / "transformers.md").read_text()
    (program,) = re.findall(r"```python\n(import torch.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(program, {})
    assert "✓ healthy  experiments/my-run  finished, last step 119" in capsys.readouterr().out
