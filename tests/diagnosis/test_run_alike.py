"""Programs that run their model in validation in another way than in training, and twins that do so without harm."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import steadyrun

PAST, FUTURE, WIDTH, STEPS = 20, 6, 24, 300


class Forecaster(nn.Module):
    """Continues series. In training the decoder may be given the true values, all at once.

    `from_zero` puts a zero before them, where validation has the last value of the past.
    """

    def __init__(self, forced: float, *, from_zero: bool) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.GRU(1, WIDTH, batch_first=True), nn.GRU(1, WIDTH, batch_first=True)
        self.head, self.forced, self.from_zero = nn.Linear(WIDTH, 1), forced, from_zero

    def forward(self, past: Tensor, future: Tensor | None = None) -> Tensor:
        _, state = self.encoder(past[..., None])
        before = past[:, -1:]
        if future is not None and self.training and torch.rand(()) < self.forced:
            fed = torch.cat([torch.zeros_like(before) if self.from_zero else before, future[:, :-1]], 1)
            return self.head(self.decoder(fed[..., None], state)[0]).squeeze(2)
        value, written = before[..., None], []
        for _ in range(FUTURE):
            hidden, state = self.decoder(value, state)
            value = self.head(hidden)
            written.append(value)
        return torch.cat(written, 1).squeeze(2)


def waves(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    period = torch.tensor([5.0, 9.0, 13.0])[torch.randint(3, (rows, 2), generator=draw)]
    phase = 6.28 * torch.rand(rows, 2, generator=draw)
    time = torch.arange(PAST + FUTURE)
    size = 0.4 + torch.rand(rows, 2, generator=draw)
    values = (size[..., None] * torch.sin(6.28 * time / period[..., None] + phase[..., None])).sum(1)
    values = values + 0.15 * torch.randn(values.shape, generator=draw)
    return values[:, :PAST], values[:, PAST:]


Call = Callable[[nn.Module, Tensor, Tensor], Tensor]


def with_both(model: nn.Module, past: Tensor, future: Tensor) -> Tensor:
    scores: Tensor = model(past, future)
    return scores


def by_keyword_in_training(model: nn.Module, past: Tensor, future: Tensor) -> Tensor:
    scores: Tensor = model(past, future=future) if model.training else model(past)
    return scores


def in_parts_in_validation(model: nn.Module, past: Tensor, future: Tensor) -> Tensor:
    """As many decoding functions do: validation calls encoder and decoder itself, and not the model."""
    return with_both(model, past, future) if model.training else cast(Tensor, model.forward(past))


def forecast(
    folder: Path,
    call: Call = with_both,
    *,
    forced: float = 1.0,
    from_zero: bool = False,
) -> steadyrun.Report:
    torch.manual_seed(0)
    train, val = waves(960, 1), [waves(64, seed) for seed in range(2, 6)]
    return trained(folder, Forecaster(forced, from_zero=from_zero), train, val, call, functional.mse_loss)


def trained(
    folder: Path,
    model: nn.Module,
    train: tuple[Tensor, Tensor],
    val: list[tuple[Tensor, Tensor]],
    call: Call,
    loss_fn: Callable[[Tensor, Tensor], Tensor],
    **config: object,
) -> steadyrun.Report:
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    draw = torch.Generator().manual_seed(9)
    with steadyrun.record(folder, config={"init": "random", **config}) as run:
        run.watch(model, optimizer, capture=False)
        for step in range(STEPS):
            rows = torch.randint(len(train[0]), (32,), generator=draw)
            optimizer.zero_grad()
            loss = loss_fn(call(model, train[0][rows], train[1][rows]), train[1][rows])
            loss.backward()
            optimizer.step()
            run.step(loss)
            if step % 30 == 29:
                model.eval()
                with torch.no_grad():
                    run.val(torch.stack([loss_fn(call(model, x, y), y) for x, y in val]).mean())
                model.train()
    return steadyrun.check(folder)


class Classifier(nn.Module):
    """Three layers; one may be skipped at random or checkpointed; the true class may get a margin in training."""

    def __init__(self, *, margin: float = 0.0, skip: float = 0.0, checkpointed: bool = False) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(PAST, 32), nn.Linear(32, 32), nn.Linear(32, 4)
        self.margin, self.skip, self.checkpointed = margin, skip, checkpointed

    def forward(self, inputs: Tensor, labels: Tensor | None = None) -> Tensor:
        hidden = self.first(inputs).relu()
        if not self.training or torch.rand(()) >= self.skip:
            more = checkpoint(self.middle, hidden, use_reentrant=False) if self.checkpointed else self.middle(hidden)
            hidden = hidden + more.relu()
        scores: Tensor = self.last(hidden)
        return scores if labels is None else scores - self.margin * functional.one_hot(labels, 4)


def classify(folder: Path, *, labels_given: bool = False, rows: int = 960, **settings: float) -> steadyrun.Report:
    torch.manual_seed(0)
    draw = torch.Generator().manual_seed(5)
    inputs = torch.randn(rows + 320, PAST, generator=draw)
    labels = (inputs[:, :4] + 0.5 * torch.randn(rows + 320, 4, generator=draw)).argmax(1)

    def call(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        scores: Tensor = model(x, y) if labels_given and model.training else model(x)
        return scores

    val = [(inputs[rows:], labels[rows:])]
    model = Classifier(**settings)  # type: ignore[arg-type]
    return trained(folder, model, (inputs[:rows], labels[:rows]), val, call, functional.cross_entropy, num_classes=4)


def answer(report: steadyrun.Report) -> str:
    return next(asked.answer.outcome for asked in report.walk.path if asked.question.code == "A2.6")


BROKEN = {
    "the decoder runs value by value": partial(forecast, from_zero=True),
    "the truth is an argument of training": partial(forecast, call=by_keyword_in_training, from_zero=True),
    "validation calls the parts": partial(forecast, call=in_parts_in_validation, from_zero=True),
}


@pytest.mark.parametrize("program", BROKEN.values(), ids=BROKEN)
def test_a_decoder_that_is_trained_on_the_truth_alone(
    program: Callable[[Path], steadyrun.Report], tmp_path: Path
) -> None:
    report = program(tmp_path / "run")
    assert report.headline is not None, str(report)
    assert (report.headline.question.code, report.headline.answer.outcome) == ("A2.6", "differs"), str(report)
    assert report.headline.answer.experiment


HEALTHY = {
    "its own values in both": (partial(forecast, forced=0.0), "alike"),
    "its own values for half of the steps": (partial(forecast, forced=0.5), "follows alike"),
    "the truth, after the last value": (forecast, "follows"),
    "the truth as an argument, after the last value": (partial(forecast, call=by_keyword_in_training), "follows"),
    "labels for a margin": (partial(classify, labels_given=True, margin=1.0), "follows"),
    "layers skipped at random": (partial(classify, skip=0.5), "alike"),
    "checkpointing": (partial(classify, checkpointed=True), "alike"),
    "few rows, learned by heart": (partial(classify, labels_given=True, rows=96), "follows"),
}


@pytest.mark.parametrize(("program", "expected"), HEALTHY.values(), ids=HEALTHY)
def test_a_difference_without_harm_is_no_finding(
    program: Callable[[Path], steadyrun.Report], expected: str, tmp_path: Path
) -> None:
    report = program(tmp_path / "run")
    assert answer(report) in expected.split(), str(report)
