"""A clip threshold or an epsilon that holds every update down is named, and not the learning rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import steadyrun
from steadyrun.preflight import PROBES
from steadyrun.questions.form import FAULT, GRADES

LEARNING = ["P6.1", "C7.1", "C7.4", "P6.5"]
Make = Callable[..., torch.optim.Optimizer]


def tried(make: Make, clip: float | None = None, **settings: Any) -> steadyrun.Report:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    inputs = torch.randn(6, 64, 8)
    batches = [(rows, rows[:, :4].argmax(1)) for rows in inputs]
    task = steadyrun.Task(model, make(model.parameters(), **settings), loss_of)
    config = {"init": "random"} | ({} if clip is None else {"clip": clip})
    return steadyrun.preflight(task, batches=batches, config=config, only=LEARNING)


def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return cross_entropy(model(batch[0]), batch[1])


SGD, ADAM = torch.optim.SGD, torch.optim.AdamW
BROKEN = {
    "clipped to 1e-5": (SGD, {"lr": 0.3, "momentum": 0.9, "clip": 1e-5}, "C7.1 clip-too-tight"),
    "clipped to 1e-3": (SGD, {"lr": 0.3, "momentum": 0.9, "clip": 1e-3}, "C7.1 clip-too-tight"),
    "epsilon 1": (ADAM, {"lr": 3e-3, "eps": 1.0}, "C7.4 epsilon"),
    "epsilon 1000": (ADAM, {"lr": 3e-3, "eps": 1e3}, "C7.4 epsilon"),
    "the rate itself": (SGD, {"lr": 1e-4, "clip": 1.0}, "P6.5 too-low"),
}


@pytest.mark.parametrize(("make", "settings", "named"), BROKEN.values(), ids=BROKEN)
def test_what_holds_updates_down_is_the_headline(make: Make, settings: dict[str, Any], named: str) -> None:
    headline = tried(make, **settings).headline
    assert headline is not None
    assert f"{headline.question.code} {headline.answer.outcome}" == named
    assert headline.answer.kind == FAULT


HEALTHY = {
    "clipped to 1": (SGD, {"lr": 0.3, "momentum": 0.9, "clip": 1.0}),
    "a rate that was made for its clip": (SGD, {"lr": 30.0, "clip": 0.01}),
    "a careful clip": (SGD, {"lr": 0.3, "momentum": 0.9, "clip": 0.01}),
    "clipped to 1e-5, which Adam undoes": (ADAM, {"lr": 3e-3, "clip": 1e-5}),
    "epsilon 0.01": (ADAM, {"lr": 3e-3, "eps": 0.01}),
}


@pytest.mark.parametrize(("make", "settings"), HEALTHY.values(), ids=HEALTHY)
def test_a_program_that_learns_has_no_finding(make: Make, settings: dict[str, Any]) -> None:
    report = tried(make, **settings)
    assert not [asked.answer.message for asked in report.walk.path if asked.answer.kind == FAULT]
    sizes = [asked for asked in report.walk.path if asked.question.code.startswith("C7")]
    assert not [asked.answer.message for asked in sizes if asked.answer.kind in GRADES]


def test_they_explain_what_the_rate_is_blamed_for() -> None:
    for code, outcome in (("C7.1", "clip-too-tight"), ("C7.4", "epsilon")):
        assert {"P6.1", "P6.5"} <= set(PROBES[code].outcome(outcome).explains)
