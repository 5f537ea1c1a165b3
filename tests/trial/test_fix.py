"""The winning change as a patch of the config, or as a line of code; and the fixed program trained once more."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import steadyrun
from steadyrun.trial import factor as kinds
from steadyrun.trial.fix import Fix, fix_of, verified
from steadyrun.trial.fix_values import optimizer_settings
from steadyrun.trial.json_values import token, with_values
from steadyrun.trial.result import Trial
from steadyrun.trial.trial import trial
from steadyrun.trial.twin import Curve, Twin
from steadyrun.trial.twin_table import Table
from steadyrun.trial.verdict import FAULT, IMPROVEMENT

CONFIG = """{
    "lr": 3e-4, "lr_min" : 0.00003,
    "betas": [0.5, 0.95],   "eps": 0.1,
    "weight_decay": 10, "ema": {"decay": 0.999},
    "model": {"dropout": 0.9, "layers": [{"attn_dropout": 0.5}], "norm": {"eps": 1e-5}},
    "label_smoothing": 0.8,
    "clip": 0.0001, "dtype": "bf16", "batch_size": 32, "warmup_steps": 2,
    "name": "größer \\u00e9"
}"""  # without a newline at its end
SETTINGS = {
    "optimizers": [
        {
            "kind": "AdamW",
            "groups": [{"lr": 1e-6, "initial_lr": 3e-4, "weight_decay": 10, "betas": (0.5, 0.95), "eps": 0.1}],
            "usual": {"betas": (0.9, 0.999), "eps": 1e-8},
            "plain": {"betas": (0.9, 0.999), "eps": 1e-8},
        }
    ],
    "batch": 32,
    "dropouts": {"blocks.0.drop": 0.9},
}
FACTORS = {
    "rate*0.1": kinds.rate_factor(0.1),
    "rate*0.3333": kinds.rate_factor(1 / 3),
    "no-decay": kinds.Factor("no-decay", kinds.DECAY, "no weight decay", removes=True),
    "no-dropout": kinds.Factor("no-dropout", kinds.DROPOUT, "no dropout", removes=True),
    "no-smoothing": kinds.Factor("no-smoothing", kinds.SMOOTHING, "no label smoothing", removes=True),
    "no-clip": kinds.Factor("no-clip", kinds.CLIP, "no clipping", removes=True),
    "clip-1": kinds.Factor("clip-1", kinds.CLIP, "gradients clipped to a norm of 1"),
    "default-settings": kinds.Factor("default-settings", kinds.OPTIMIZER, "the usual betas", removes=True),
    "default-start": kinds.Factor("default-start", kinds.START, "torch's default initial weights", removes=True),
    "float32": kinds.Factor("float32", kinds.PRECISION, "float32", removes=True),
    "warmup": kinds.Factor("warmup", kinds.WARMUP, "a longer warmup"),
    "batch*2": kinds.Factor("batch*2", kinds.BATCH, "twice the batch"),
    "adamw": kinds.Factor("adamw", kinds.OPTIMIZER, "plain AdamW"),
    "vary model.dropout = 0.25": kinds.user_factor("model.dropout", 0.25),
    "vary model.width = 64": kinds.user_factor("model.width", 64),
    "vary new.part.size = 3": kinds.user_factor("new.part.size", 3),
}


def curve(factor: str, seed: int, end: float) -> Curve:
    losses = [2.0, (2.0 + 3 * end) / 4, end, end, end, end]
    return Curve(factor, seed, 40, [0, 5, 10, 20, 30, 40], {"held": losses})


def won(name: str, config: dict[str, Any], settings: dict[str, Any] | None = None) -> Trial:
    """A trial in which this change is far ahead of the unchanged twin."""
    table = Table("held", {"own": kinds.OWN_TWIN, **FACTORS})
    for seed in (1, 2, 3):
        table.add(curve("own", seed, 1.5 + 0.01 * seed))
        table.add(curve(name, seed, 0.3 + 0.01 * seed))
    return Trial(
        "train:task", config, "the first weights", 40, table, settings=SETTINGS if settings is None else settings
    )


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("rate*0.1", {"lr": 3e-5, "lr_min": 3e-6}),
        ("rate*0.3333", {"lr": 1e-4, "lr_min": 1e-5}),
        ("no-decay", {"weight_decay": 0}),  # and not the decay of an average
        ("no-dropout", {"model.dropout": 0.0, "model.layers.0.attn_dropout": 0.0}),
        ("no-smoothing", {"label_smoothing": 0.0}),
        ("no-clip", {"clip": None}),
        ("clip-1", {"clip": 1.0}),
        ("default-settings", {"betas": [0.9, 0.999], "eps": 1e-8}),  # and not the epsilon of a norm
        ("float32", {"dtype": "fp32"}),
        ("warmup", {"warmup_steps": 12}),
        ("batch*2", {"batch_size": 64}),
        ("vary model.dropout = 0.25", {"model.dropout": 0.25}),
        ("vary model.width = 64", {"model.width": 64}),
        ("vary new.part.size = 3", {"new.part.size": 3}),
    ],
)
def test_a_change_of_the_config_applies_as_a_patch(
    name: str, changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `git apply` and by `patch`, to the file that parses to the new config; all other text stays."""
    file = tmp_path / "run config" / "config.json"
    file.parent.mkdir()
    file.write_text(CONFIG, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    fix = fix_of(won(name, json.loads(CONFIG)), file)
    assert fix is not None
    assert {path: new for path, _, new in fix.changes} == changes
    expected = json.loads(CONFIG)
    for path, value in changes.items():
        put(expected, path.split("."), value)
    assert fix.config == expected
    patched = [applied(fix, tmp_path, words) for words in tools()]
    assert patched
    for text in patched:
        assert json.loads(text) == expected
        assert text == fix.patched
        assert "größer \\u00e9" in text
    before, after = CONFIG.split("\n"), patched[0].split("\n")
    assert sum(line not in after for line in before) <= 2
    assert json.loads(json.dumps(fix.to_dict()))["factor"] == name
    assert fix.apply() == file
    assert json.loads(file.read_text(encoding="utf-8")) == expected


def put(config: Any, path: list[str], value: Any) -> None:
    for key in path[:-1]:
        config = config[int(key)] if isinstance(config, list) else config.setdefault(key, {})
    config[path[-1]] = value


def tools() -> list[list[str]]:
    known = {"git": ["git", "apply", "-p0"], "patch": ["patch", "--quiet", "-p0"]}
    return [words for name, words in known.items() if shutil.which(name)]


def applied(fix: Fix, folder: Path, words: list[str]) -> str:
    file = folder / "run config" / "config.json"
    subprocess.run(words, cwd=folder, input=fix.patch.encode(), check=True, capture_output=True)
    text = file.read_text(encoding="utf-8")
    file.write_text(CONFIG, encoding="utf-8")
    return text


def test_only_tokens_change() -> None:
    assert with_values('{"lr":3e-4,\r\n "a" : [1,2]}', {("lr",): 3e-5}) == '{"lr":3e-5,\r\n "a" : [1,2]}'
    assert with_values('{"a" : [{"b": 1 }] }', {("a", 0, "b"): 2}) == '{"a" : [{"b": 2 }] }'
    assert with_values("{ }", {("b",): 2}) == '{"b": 2}'
    assert with_values('{\n  "a": 1\n}\n', {("b",): None}) == '{\n  "a": 1,\n  "b": null\n}\n'
    assert with_values('{"a": 1}', {("a", "b"): 2}) == '{"a": 1}'  # a value is in the way


@pytest.mark.parametrize(
    ("value", "before", "text"),
    [
        (3e-5, "3e-4", "3e-5"),
        (3e-5, "3e-04", "3e-05"),
        (3e-5, "3E-4", "3E-5"),
        (3e-5, "0.0003", "0.00003"),
        (0.1, "1", "0.1"),
        (10.0, "1", "10"),
        (10.0, "1.0", "10.0"),
        (None, "1", "null"),
        ([0.9, 0.999], "[0.5, 0.6]", "[0.9, 0.999]"),
    ],
)
def test_numbers_are_written_as_before(value: Any, before: str, text: str) -> None:
    assert token(value, before) == text


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("rate*0.1", "torch.optim.AdamW(..., lr=3e-05)  # was lr=0.0003"),
        ("no-decay", "torch.optim.AdamW(..., weight_decay=0)  # was weight_decay=10"),
        (
            "default-settings",
            "torch.optim.AdamW(..., betas=(0.9, 0.999), eps=1e-08)  # was betas=(0.5, 0.95), eps=0.1",
        ),
        ("no-dropout", "torch.nn.Dropout(p=0.0)  # was p=0.9 in blocks.0.drop"),
        ("no-clip", "# remove torch.nn.utils.clip_grad_norm_(model.parameters(), ...)"),
        ("clip-1", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # before optimizer.step()"),
        ("batch*2", "torch.utils.data.DataLoader(..., batch_size=64)  # was 32"),
        ("adamw", "torch.optim.AdamW(model.parameters(), lr=0.001)  # was AdamW"),
    ],
)
def test_a_value_that_the_config_does_not_have_is_a_line_of_code(name: str, code: str) -> None:
    fix = fix_of(won(name, {"layers": 2}), None)
    assert fix is not None
    assert fix.code == (code,)
    assert fix.config is None
    assert f"  {code}" in fix.lines()


def test_a_file_that_does_not_have_the_value(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    for text in ('{"layers": 2}', "lr: 3e-4\n"):
        file.write_text(text)
        fix = fix_of(won("rate*0.1", {"lr": 3e-4}), file)
        assert fix is not None
        assert fix.config == {"lr": 3e-5}
        assert not fix.patch
        assert "does not have these values" in fix.lines()[-1]
        with pytest.raises(ValueError, match="no file to change"):
            fix.apply()


def test_a_change_without_a_value_gives_the_words_of_the_verdict() -> None:
    found = won("default-start", {"lr": 1.0})
    fix = fix_of(found, None)
    assert fix is not None
    assert found.verdict.fix
    assert fix.lines() == [f"fix: {found.verdict.fix}"]


def test_a_part_that_nothing_trains_gives_the_words_of_the_verdict() -> None:
    found = won("rate*0.1", {"lr": 1.0})
    for own in found.table.own.values():
        own.unmoved = ["head"]
    fix = fix_of(found, None)
    assert found.verdict.kind == FAULT
    assert not found.verdict.factor
    assert fix is not None
    assert fix.lines() == [f"fix: {found.verdict.fix}"]
    assert fix.config is None


def test_a_trial_that_finds_nothing_has_no_fix() -> None:
    clear = won("rate*0.1", {"lr": 1.0})
    del clear.table.curves["rate*0.1"]
    assert fix_of(clear, None) is None


# -- a real program ---------------------------------------------------------------------------------


def program(config: dict[str, Any]) -> steadyrun.Task:
    """A line that is fitted at a rate that is far too low."""
    source = torch.Generator().manual_seed(5)
    weights = torch.randn(6, generator=source)
    inputs = torch.randn(24, 16, 6, generator=source)
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.5)

    def loss_fn(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return nn.functional.mse_loss(model(batch[0]).squeeze(1), batch[1])

    return steadyrun.Task(model, optimizer, loss_fn, loader=[(x, x @ weights) for x in inputs], config=config)


def deaf(config: dict[str, Any]) -> steadyrun.Task:
    """The same with the rate in its code."""
    return program({**config, "lr": 0.0005})


@pytest.fixture(scope="module")
def slow() -> Trial:
    return trial(program, config={"lr": 0.0005}, only=["rate"], steps=40, budget=120)


def test_the_fixed_program_is_verified(slow: Trial) -> None:
    assert slow.verdict.kind in (FAULT, IMPROVEMENT)
    fix = fix_of(slow, None)
    assert fix is not None
    assert fix.config is not None
    assert fix.config["lr"] > 0.0005
    found = verified(fix, program, slow)
    assert found.is_fixed, found.line
    assert found.line.startswith("verified: with the new config the loss ends at ")


def test_a_program_that_does_not_read_the_value_is_not_verified(slow: Trial) -> None:
    fix = fix_of(slow, None)
    assert fix is not None
    found = verified(fix, deaf, slow)
    assert found.is_fixed is False
    assert found.line.endswith("The program may not read this config value.")


def test_a_line_of_code_cannot_be_verified(slow: Trial) -> None:
    found = verified(Fix("rate*10", "the learning rate times 10"), program, slow)
    assert found.is_fixed is None


def test_the_settings_of_a_program(slow: Trial) -> None:
    settings = optimizer_settings(Twin(program({"lr": 0.0005}), 4))
    assert slow.settings == settings
    (optimizer,) = settings["optimizers"]
    assert optimizer["kind"] == "SGD"
    assert optimizer["groups"][0]["lr"] == 0.0005
    assert optimizer["groups"][0]["momentum"] == 0.5
    assert optimizer["usual"]["momentum"] == 0.9
    assert settings["batch"] == 16
