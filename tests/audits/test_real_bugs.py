"""Real bugs in ordinary loops: each is the headline of its run, and the healthy ones have none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from audited_programs import classify, examples, write
from torch import nn
from torch.nn import functional

import steadyrun


@pytest.mark.parametrize(
    ("bug", "code", "outcome"),
    [
        ("no-zero-grad", "A1.1", "not-cleared"),
        ("erased", "C1.2", "erased"),
        ("late-clip", "A1.3", "after-step"),
        ("left-in-evaluation", "A2.1", "left-on"),
        ("validated-in-training", "A2.2", "in-training"),
        ("softmax", "A3.1", "squashed-twice"),
        ("sorted", "A3.6", "sorted"),
        ("replaced", "A4.1", "stale"),
        ("list", "A4.2", "unregistered"),
        ("detached", "A4.3", "cut-off"),
        ("frozen", "A4.4", "nothing-trainable"),
        ("same-order", "A5.1", "not-reshuffled"),
        ("augmented", "A5.3", "changed"),
    ],
)
def test_a_bug_of_the_classifier_is_the_headline(tmp_path: Path, bug: str, code: str, outcome: str) -> None:
    report = classify(tmp_path / "run", bug)
    assert report.headline is not None
    assert (report.headline.question.code, report.headline.answer.outcome) == (code, outcome)
    assert report.verdict == "fault"


@pytest.mark.parametrize("variant", ["", "zeroed-in-place"])
def test_a_healthy_classifier_has_no_headline(tmp_path: Path, variant: str) -> None:
    report = classify(tmp_path / "run", variant)
    assert report.headline is None, report.headline
    failed = [asked for asked in report.walk.path if asked.answer.outcome == "failed"]
    assert not failed


@pytest.mark.parametrize(
    ("bug", "code", "outcome"),
    [
        ("shifted-twice", "A3.3", "shifted-twice"),
        ("not-shifted", "A3.3", "not-shifted"),
        ("padded", "A3.4", "supervised"),
        ("masked-ends", "A3.5", "never-asked"),
    ],
)
def test_a_bug_of_the_targets_is_the_headline(tmp_path: Path, bug: str, code: str, outcome: str) -> None:
    report = write(tmp_path / "run", bug)
    assert report.headline is not None
    assert (report.headline.question.code, report.headline.answer.outcome) == (code, outcome)


def test_healthy_texts_have_no_headline(tmp_path: Path) -> None:
    assert write(tmp_path / "run").headline is None


def test_an_id_beyond_the_table_is_told_from_the_frames_of_the_exception(tmp_path: Path) -> None:
    with pytest.raises(IndexError):
        write(tmp_path / "run", "out-of-range")
    report = steadyrun.check(tmp_path / "run")
    assert report.headline is not None
    assert report.headline.answer.outcome == "token-out-of-range"
    assert dict(report.headline.answer.measured) == {"smallest": 0.0, "largest": 24.0, "size": 24.0}


def test_predictions_stretched_over_the_batch(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(4, 1), torch.randn(32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with steadyrun.record(tmp_path / "run") as run:
        run.watch(model, optimizer)
        for _ in range(30):
            optimizer.zero_grad()
            loss = ((model(x) - x.sum(1)) ** 2).mean()
            loss.backward()
            optimizer.step()
            run.step(loss, batch=x)
    headline = steadyrun.check(tmp_path / "run").headline
    assert headline is not None
    assert headline.answer.outcome == "broadcast"
    assert headline.answer.measured["compared"] == 32 * 32


def test_updates_that_bf16_rounds_away(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4)).to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    x, y = torch.randn(32, 16).bfloat16(), torch.randint(0, 4, (32,))
    with steadyrun.record(tmp_path / "run", config={"num_classes": 4}) as run:
        run.watch(model, optimizer)
        for _ in range(30):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x).float(), y)
            loss.backward()
            optimizer.step()
            run.step(loss)
    headline = steadyrun.check(tmp_path / "run").headline
    assert headline is not None
    assert headline.answer.outcome == "rounded-away"


def test_two_optimizers_that_take_turns_leave_nothing(tmp_path: Path) -> None:
    """A GAN-like loop: each zeroes its own gradients right before its own backward pass."""
    torch.manual_seed(0)
    maker, judge = nn.Linear(4, 4), nn.Linear(4, 1)
    both = nn.ModuleList([maker, judge])
    optimizers = [torch.optim.Adam(judge.parameters(), 1e-3), torch.optim.Adam(maker.parameters(), 1e-3)]
    with steadyrun.record(tmp_path / "run") as run:
        run.watch(both, optimizers)
        for _ in range(60):
            noise, real = torch.randn(8, 4), torch.randn(8, 4) + 2
            optimizers[0].zero_grad()
            loss = functional.softplus(-judge(real)).mean() + functional.softplus(judge(maker(noise).detach())).mean()
            loss.backward()
            optimizers[0].step()
            optimizers[1].zero_grad()
            functional.softplus(-judge(maker(noise))).mean().backward()
            optimizers[1].step()
            run.step(loss)
    report = steadyrun.check(tmp_path / "run")
    assert report.headline is None, report.headline


def test_accumulation_begins_empty(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    with steadyrun.record(tmp_path / "run", config={"accumulation": 4}) as run:
        run.watch(model, optimizer)
        for _ in range(60):
            optimizer.zero_grad()
            losses = []
            for _ in range(4):
                loss = model(torch.randn(8, 4)).square().mean()
                (loss / 4).backward()
                losses.append(loss.detach())
            optimizer.step()
            run.step(torch.stack(losses).mean())
    answers = {asked.question.code: asked.answer for asked in steadyrun.check(tmp_path / "run").walk.path}
    assert answers["A1.1"].outcome == "pass"
    assert answers["A1.2"].outcome == "pass"


def test_a_pooler_that_nobody_uses_is_a_note(tmp_path: Path) -> None:
    torch.manual_seed(0)

    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.pooler, self.head = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.body(x).relu()
            self.pooler(hidden).tanh()
            return self.head(hidden)

    model = Pooled()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    with steadyrun.record(tmp_path / "run", config={"init": "random", "num_classes": 4}) as run:
        run.watch(model, optimizer)
        for _ in range(60):
            x, y = torch.randn(16, 8), torch.randint(0, 4, (16,))
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            run.step(loss, batch=(x, y))
    answers = {asked.question.code: asked.answer for asked in steadyrun.check(tmp_path / "run").walk.path}
    assert answers["A4.3"].outcome == "unused"


def test_a_loss_that_is_a_new_number_trains_nothing(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    with steadyrun.record(tmp_path / "run", config={"num_classes": 2}) as run:
        run.watch(model, optimizer)
        for _ in range(60):
            x, y = torch.randn(16, 4), torch.randint(0, 2, (16,))
            optimizer.zero_grad()
            loss = torch.tensor(functional.cross_entropy(model(x), y).item(), requires_grad=True)
            loss.backward()
            optimizer.step()
            run.step(loss, batch=(x, y))
    headline = steadyrun.check(tmp_path / "run").headline
    assert headline is not None
    assert (headline.question.code, headline.answer.outcome) == ("A4.3", "nothing-reached")


def test_the_second_of_two_optimizers_is_never_cleared(tmp_path: Path) -> None:
    torch.manual_seed(0)
    first, second = nn.Linear(4, 8), nn.Linear(8, 2)
    optimizers = [torch.optim.SGD(first.parameters(), 0.01), torch.optim.SGD(second.parameters(), 0.01)]
    with steadyrun.record(tmp_path / "run") as run:
        run.watch(nn.Sequential(first, nn.ReLU(), second), optimizers)
        for _ in range(60):
            optimizers[0].zero_grad()
            loss = second(first(torch.randn(8, 4)).relu()).square().mean()
            loss.backward()
            for each in optimizers:
                each.step()
            run.step(loss)
    headline = steadyrun.check(tmp_path / "run").headline
    assert headline is not None
    assert headline.question.code == "A1.1"


def test_tags_with_the_number_of_the_padding_are_no_padding(tmp_path: Path) -> None:
    """Token classification: labels at padding are ignored, and class 0 is a class."""
    torch.manual_seed(0)

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.segments, self.head = nn.Embedding(30, 16), nn.Embedding(2, 16), nn.Linear(16, 5)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.words(ids) + self.segments(torch.zeros_like(ids)))

    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    length = torch.randint(5, 13, (16, 1))
    real = torch.arange(12) < length
    loss_fn = lambda m, b: functional.cross_entropy(m(b[0]).transpose(1, 2), b[1])  # noqa: E731
    batches = []
    for _ in range(4):
        ids = torch.randint(3, 30, (16, 12)) * real
        batches.append((ids, (ids % 5).masked_fill(~real, -100)))
    with steadyrun.record(tmp_path / "run", config={"pad_id": 0, "num_classes": 5}) as run:
        run.watch(model, optimizer, loss_fn=loss_fn, loader=batches, preflight=True)
        for step in range(60):
            optimizer.zero_grad()
            loss = loss_fn(model, batches[step % 4])
            loss.backward()
            optimizer.step()
            run.step(loss, batch=batches[step % 4])
    assert steadyrun.check(tmp_path / "run").headline is None


def test_pure_bf16_that_learns_is_no_fault(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 8)).bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    x, y = examples(640, 1)
    with steadyrun.record(tmp_path / "run", config={"num_classes": 8}) as run:
        run.watch(model, optimizer)
        for step in range(200):
            part = slice(32 * (step % 20), 32 * (step % 20) + 32)
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x[part].bfloat16()).float(), y[part])
            loss.backward()
            optimizer.step()
            run.step(loss, batch=(x[part], y[part]))
    assert float(loss.detach()) < 1.2
    answers = {asked.question.code: asked.answer for asked in steadyrun.check(tmp_path / "run").walk.path}
    assert answers["A4.5"].outcome == "pass"
    assert answers["A4.5"].measured["stalled"] > 0.3
