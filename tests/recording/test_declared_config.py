"""Names and values of the config that look like known ones are answered; the user's own names are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import steadyrun
from steadyrun.recording.declared_config import DECLARED
from steadyrun.signals.config_names import config_notes
from steadyrun.signals.declared_names import NAMES


@pytest.mark.parametrize(
    ("config", "nearest"),
    [
        ({"warmup": 100}, "warmup_steps"),
        ({"learning_rate": 1e-3}, "lr_max"),
        ({"lr": 1e-3}, "lr_max"),
        ({"weigth_decay": 0.1}, "weight_decay"),
        ({"batchSize": 8}, "batch_size"),
        ({"total_step": 9}, "total_steps"),
        ({"max_grad_norm": 1.0}, "clip"),
        ({"gradient_accumulation_steps": 2}, "accumulation"),
        ({"lr_scheduler_type": "cosine"}, "schedule"),
        ({"schedule": "cosin"}, "cosine"),
    ],
)
def test_a_near_miss_is_answered_with_the_known_name(config: dict[str, Any], nearest: str) -> None:
    (note,) = config_notes(config)
    assert note.nearest == nearest
    assert f"use {nearest!r}" in note.why


def test_what_is_checked_is_compared() -> None:
    assert set(DECLARED) < set(NAMES)


def test_a_dtype_is_never_guessed() -> None:
    (note,) = config_notes({"dtype": "bfloat"})
    assert (note.nearest, note.why) == (
        None,
        "the declared dtype 'bfloat' is not known, use 'fp32', 'bf16' or 'fp16'",
    )


@pytest.mark.parametrize(
    "config",
    [
        {"project": "x", "layers": 2, "width": 64, "dropout": 0.1, "patch_size": 16, "image_size": 224, "heads": 4},
        {"warmup_ratio": 0.1, "val_batch_size": 8, "log_every": 10, "save_every": 100, "beta1": 0.9, "momentum": 0.9},
        {"lr": 1e-3, "lr_max": 1e-3},  # both: the known one is compared
        {"warmup": None},
        {"schedule": "cosine with warmup", "dtype": "torch.bfloat16"},
        {"model": "gpt", "optimizer": "adamw", "device": "cpu", "epochs": 3, "num_workers": 4, "seeds": [1, 2]},
        {"num_steps": 128, "decay": 0.99, "classes": ["a", "b"], "vocab": "vocab.json", "eval_steps": 20, "batch": "x"},
        dict.fromkeys(NAMES),
        {1: "not a text", ("a", "b"): 2},
    ],
)
def test_names_of_the_users_own_are_left_alone(config: dict[Any, Any]) -> None:
    assert config_notes(config) == []


def recorded(folder: Path, config: dict[str, Any]) -> Path:
    with steadyrun.record(folder, config=config) as run:
        for step in range(60):
            run.log(loss=2.0 * 0.97**step)
    return folder


def test_it_is_said_once_in_the_event_log_and_in_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"schedule": "onecycle", "warmup": 100, "my_own": 1}
    run = recorded(tmp_path / "run", config)
    said = [line for line in capsys.readouterr().err.splitlines() if "config:" in line]
    assert len(said) == 1
    assert "'warmup' is not compared, use 'warmup_steps'" in said[0]
    assert "'onecycle' (known: cosine, linear, constant)" in said[0]
    events = steadyrun.open_run(run).events("config-note")
    assert [(event.fields["name"], event.fields["nearest"]) for event in events] == [
        ("warmup", "warmup_steps"),
        ("schedule", None),
    ]
    report = steadyrun.check(run)
    (note,) = [note for note in report.to_dict()["notes"] if note["code"] == "N1.1"]
    assert note["message"].count("config:") == 1
    assert "'warmup' is not compared, use 'warmup_steps'" in str(report)
    assert "my_own" not in note["message"]
    assert steadyrun.open_run(run).manifest["config"] == config


def test_a_resumed_run_notes_it_once(tmp_path: Path) -> None:
    for _ in range(2):
        run = recorded(tmp_path / "run", {"warmup": 100})
    (note,) = [note for note in steadyrun.check(run).to_dict()["notes"] if note["code"] == "N1.1"]
    assert note["message"] == "config: 'warmup' is not compared, use 'warmup_steps'"


def test_notes_change_no_verdict(tmp_path: Path) -> None:
    plain = steadyrun.check(recorded(tmp_path / "plain", {})).to_dict()
    noted = steadyrun.check(recorded(tmp_path / "noted", {"warmup": 100})).to_dict()
    assert (noted["verdict"], noted["headline"]) == (plain["verdict"], plain["headline"])
    assert [entry["code"] for entry in plain["walk"]] == [
        entry["code"] for entry in noted["walk"] if entry["code"] != "N1.1"
    ]


def test_a_wrong_type_of_a_known_name_is_an_error_before_training(tmp_path: Path) -> None:
    with pytest.raises(steadyrun.UsageError, match=r"clip must be a number, not '1\.0'"):
        steadyrun.record(tmp_path / "run", config={"clip": "1.0"})


def test_preflight_notes_it_and_a_run_with_preflight_notes_it_once(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    batches = [(torch.randn(8, 4), torch.randint(0, 3, (8,))) for _ in range(4)]

    def loss_fn(model: Any, batch: Any) -> Any:
        return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])

    config = {"num_classes": 3, "warmup": 100}
    before = steadyrun.preflight(model, optimizer, loss_fn, batches, config=config, only=["A3.1"])
    assert [asked.question.code for asked in before.walk.path] == ["A3.1", "N1.1"]
    assert "'warmup' is not compared, use 'warmup_steps'" in str(before)
    with steadyrun.record(tmp_path / "run", config=config) as run:
        run.watch(model, optimizer, loss_fn=loss_fn, preflight=batches)
    codes = [asked.question.code for asked in steadyrun.check(tmp_path / "run").walk.path]
    assert codes.count("N1.1") == 1
