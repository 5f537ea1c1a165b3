"""Sequences of different lengths, padded: a loss that counts the padding, and its masked twin, for every target."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import steadyrun

LENGTH, WIDTH, TAGS, WORDS, STEPS = 20, 6, 4, 30, 150


class Tagger(nn.Module):
    """A recurrent network with an output at every position."""

    def __init__(self, words: bool, outputs: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(WORDS, WIDTH, padding_idx=0) if words else nn.Identity()
        self.body = nn.GRU(WIDTH, 24, batch_first=True)
        self.head = nn.Linear(24, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.table(x))[0])


def batch_of(kind: str, draw: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, targets and which positions are real; padding is zero in all of them."""
    lengths = torch.randint(5, LENGTH + 1, (32,), generator=draw)
    mask = torch.arange(LENGTH) < lengths[:, None]
    if kind == "tags":
        x = torch.randint(1, WORDS, (32, LENGTH), generator=draw) * mask
        return x, (x % TAGS) * mask, mask
    x = torch.randn(32, LENGTH, WIDTH, generator=draw) * mask[..., None]
    return x, torch.tanh(x[..., :1].cumsum(1)) * mask[..., None], mask


def loss_of(kind: str, model: nn.Module, batch: tuple[Tensor, Tensor, Tensor], *, masked: bool) -> Tensor:
    x, y, mask = batch
    if kind == "tags":
        losses = functional.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="none").view(mask.shape)
    else:
        losses = (model(x) - y).square().squeeze(-1)
    return (losses * mask).sum() / mask.sum() if masked else losses.mean()


def train(folder: Path, kind: str, *, masked: bool) -> steadyrun.Report:
    model = Tagger(kind == "tags", TAGS if kind == "tags" else 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    draw = torch.Generator().manual_seed(1)
    held_out = batch_of(kind, torch.Generator().manual_seed(2))
    with steadyrun.record(folder, config={"init": "random"}) as run:
        run.watch(model, optimizer, capture=False)
        for step in range(STEPS):
            batch = batch_of(kind, draw)
            optimizer.zero_grad()
            loss = loss_of(kind, model, batch, masked=masked)
            loss.backward()
            optimizer.step()
            run.step(loss, batch=batch)
            if step % 50 == 49:
                model.eval()
                with torch.no_grad():
                    run.val(loss_of(kind, model, held_out, masked=masked))
                model.train()
    return steadyrun.check(folder)


@pytest.mark.parametrize(("kind", "named"), [("tags", "counted"), ("numbers", "zeros-counted")])
def test_padding_in_the_loss_is_named(tmp_path: Path, kind: str, named: str) -> None:
    report = train(tmp_path, kind, masked=False)
    assert report.headline is not None
    assert (report.headline.question.code, report.headline.answer.outcome) == ("A3.9", named)


@pytest.mark.parametrize("kind", ["tags", "numbers"])
def test_padding_that_is_masked_is_healthy(tmp_path: Path, kind: str) -> None:
    report = train(tmp_path, kind, masked=True)
    outcomes = {asked.question.code: asked.answer.outcome for asked in report.walk.path}
    assert outcomes["A3.9"] == "pass"
    assert report.verdict == "healthy", report
