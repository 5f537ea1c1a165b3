"""Small programs whose data is broken, each beside a healthy twin that looks alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import steadyrun

CLASSES, WIDTH, ROWS, HELD_OUT, STEPS = 5, 20, 640, 320, 300
Change = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def unchanged(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x, y


class WithoutNaN(nn.Module):
    """Takes missing values as zeros."""

    def forward(self, x: Tensor) -> Tensor:
        return x.nan_to_num(0.0)


def classifier(first: nn.Module | None = None) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(first or nn.Identity(), nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, CLASSES))


def data() -> tuple[Tensor, Tensor]:
    """Points around the centres of their classes, training first."""
    draw = torch.Generator().manual_seed(3)
    centres = 1.2 * torch.randn(CLASSES, WIDTH, generator=draw)
    y = torch.randint(CLASSES, (ROWS + HELD_OUT,), generator=draw)
    return centres[y] + torch.randn(len(y), WIDTH, generator=draw), y


def train(
    folder: Path,
    *,
    rows: Change = unchanged,
    batch: Change = unchanged,
    held_out: Change = unchanged,
    model: nn.Module | None = None,
    steps: int = STEPS,
) -> steadyrun.Report:
    """Train; `rows` changes the training set, `batch` each of its batches, `held_out` validation."""
    x, y = data()
    model = model or classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    x_train, y_train = rows(x[:ROWS].clone(), y[:ROWS].clone())
    x_val, y_val = held_out(x[ROWS:].clone(), y[ROWS:].clone())
    draw = torch.Generator().manual_seed(7)
    with steadyrun.record(folder, config={"num_classes": CLASSES, "init": "random"}) as run:
        run.watch(model, optimizer, capture=False)
        order = torch.randperm(len(x_train), generator=draw)
        for step in range(steps):
            if len(order) < 32:
                order = torch.randperm(len(x_train), generator=draw)
            chosen, order = order[:32], order[32:]
            inputs, labels = batch(x_train[chosen], y_train[chosen])
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            run.step(loss, batch=(inputs, labels))
            if step % 50 == 49:
                model.eval()
                with torch.no_grad():
                    val = functional.cross_entropy(model(x_val), y_val)
                model.train()
                run.val(val, batches=[(x_val, y_val)])
    return steadyrun.check(folder)


def answers(report: steadyrun.Report) -> dict[str, str]:
    return {asked.question.code: asked.answer.outcome for asked in report.walk.path}


def headline(report: steadyrun.Report) -> tuple[str, str]:
    assert report.headline is not None, report
    return report.headline.question.code, report.headline.answer.outcome


# -- values that are not finite ---------------------------------------------------------------------


def one_hole(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x[333, 4] = float("nan")
    return x, y


def test_a_batch_with_nan_is_named_before_the_loss(tmp_path: Path) -> None:
    assert headline(train(tmp_path, rows=one_hole)) == ("A5.5", "non-finite")


def test_missing_values_that_the_model_fills_in_are_healthy(tmp_path: Path) -> None:
    report = train(tmp_path, rows=one_hole, model=classifier(WithoutNaN()))
    assert answers(report)["A5.5"] == "handled"
    assert report.verdict == "healthy", report


# -- training and validation prepared differently ---------------------------------------------------


def as_bytes(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return 127 + 40 * x, y


def raw(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return 0.45 + 0.2 * x, y


def noisy(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x + 0.5 * torch.randn(x.shape, generator=torch.Generator().manual_seed(5)), y


def far_noisier(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x + 4.0 * torch.randn(x.shape, generator=torch.Generator().manual_seed(int(y.sum()))), y


def test_a_scale_that_only_validation_lacks_is_a_fault(tmp_path: Path) -> None:
    assert headline(train(tmp_path, held_out=as_bytes)) == ("A5.6", "other-scale")


def test_a_missing_normalisation_is_suspected(tmp_path: Path) -> None:
    report = train(tmp_path, held_out=raw)
    assert headline(report) == ("A5.6", "differs")
    assert "training batch" in report.headline.answer.experiment  # type: ignore[union-attr]


@pytest.mark.parametrize("augmented", [noisy, far_noisier])
def test_augmentation_in_training_alone_is_healthy(tmp_path: Path, augmented: Change) -> None:
    report = train(tmp_path, batch=augmented)
    assert answers(report)["A5.6"] in ("pass", "follows")
    assert report.verdict == "healthy", report


def test_the_same_preparation_on_both_sides_is_healthy(tmp_path: Path) -> None:
    report = train(tmp_path, batch=raw, held_out=raw, steps=600)
    assert answers(report)["A5.6"] == "pass"
    assert report.verdict == "healthy", report


def renumbered(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x, (y + 1) % CLASSES


def turned(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.flip(1), y


def shuffled_apart(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x, y[torch.randperm(len(y), generator=torch.Generator().manual_seed(6))]


@pytest.mark.parametrize("other", [renumbered, turned, shuffled_apart])
def test_validation_of_another_kind_is_told_from_learning_by_heart(tmp_path: Path, other: Change) -> None:
    report = train(tmp_path, held_out=other)
    assert headline(report) == ("A5.6", "unlike")
    assert "Memorisation does not explain" in report.headline.answer.message  # type: ignore[union-attr]


@pytest.mark.parametrize("other", [renumbered, turned])
def test_the_same_change_on_both_sides_is_healthy(tmp_path: Path, other: Change) -> None:
    report = train(tmp_path, rows=other, held_out=other)
    assert answers(report)["A5.6"] == "pass"
    assert report.verdict == "healthy", report


def rare_classes(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Two classes are rare in training and common in validation."""
    keep = (y > 1) | (torch.arange(len(y)) % 8 == 0)
    return x[keep], y[keep]


def test_another_balance_of_classes_is_healthy(tmp_path: Path) -> None:
    report = train(tmp_path, rows=rare_classes)
    assert answers(report)["A5.6"] == "pass"
    assert report.verdict == "healthy", report


# -- labels that do not belong to their inputs ------------------------------------------------------


class Labels:
    """What a loop with a mistake hands over as labels."""

    def __init__(self, kind: str) -> None:
        self._kind, self._first = kind, None
        self._draw = torch.Generator().manual_seed(2)

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if self._kind == "first batch":
            self._first = y if self._first is None else self._first
            return x, self._first
        if self._kind == "one class":
            return x, torch.zeros_like(y)
        return x, y[torch.randperm(len(y), generator=self._draw)]


@pytest.mark.parametrize(
    ("kind", "named"),
    [("first batch", "repeated"), ("shuffled", "reassigned")],
)
def test_labels_of_other_inputs_are_named(tmp_path: Path, kind: str, named: str) -> None:
    report = train(tmp_path, batch=Labels(kind), steps=400)
    code, outcome = headline(report)
    assert code == "A5.7"
    assert outcome in (named, f"{named}-unrelated")


def test_one_class_alone_is_named(tmp_path: Path) -> None:
    assert headline(train(tmp_path, batch=Labels("one class"), steps=400)) == ("A5.9", "constant")


def permuted(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Labels in another order than their inputs, once and for all: they can only be learned by heart."""
    return x, y[torch.randperm(len(y), generator=torch.Generator().manual_seed(6))]


def test_labels_learned_by_heart_alone_are_suspected(tmp_path: Path) -> None:
    report = train(tmp_path, rows=permuted, steps=600)
    assert headline(report) == ("S1.4", "by-heart-alone")
    assert "shuffled labels" in report.headline.answer.experiment  # type: ignore[union-attr]


def test_a_hard_task_that_is_also_learned_by_heart_is_overfitting(tmp_path: Path) -> None:
    report = train(tmp_path, rows=noisy_rows, held_out=noisy_rows, steps=600)
    assert answers(report)["A5.6"] == "pass"
    assert answers(report).get("S1.4", "pass") == "pass"
    assert report.verdict == "healthy" or headline(report) == ("C4.2", "overfitting")


def some_wrong(fraction: float) -> Change:
    def change(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        draw = torch.Generator().manual_seed(11)
        wrong = torch.rand(len(y), generator=draw) < fraction
        return x, torch.where(wrong, torch.randint(CLASSES, y.shape, generator=draw), y)

    return change


def test_many_wrong_labels_in_training_are_suspected(tmp_path: Path) -> None:
    report = train(tmp_path, rows=some_wrong(0.6), model=nn.Linear(WIDTH, CLASSES))
    assert headline(report) == ("C4.2", "noisier")


def test_some_label_noise_is_not_suspected(tmp_path: Path) -> None:
    report = train(tmp_path, rows=some_wrong(0.1), model=nn.Linear(WIDTH, CLASSES))
    assert answers(report)["C4.2"] in ("pass", "apart", "below")
    assert report.verdict == "healthy", report


def episode(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The same number of each class in the same order: every batch has the same labels."""
    chosen = torch.cat([torch.nonzero(y == label)[:2, 0] for label in range(CLASSES)])
    return x[chosen], y[chosen]


def test_the_same_classes_in_every_batch_are_healthy(tmp_path: Path) -> None:
    report = train(tmp_path, batch=episode)
    assert answers(report)["A5.7"] == "meant"
    assert report.verdict == "healthy", report


def test_a_little_label_noise_is_healthy(tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(4)

    def disturbed(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        other = torch.randint(CLASSES, y.shape, generator=draw)
        return x, torch.where(torch.rand(len(y), generator=draw) < 0.2, other, y)

    report = train(tmp_path, batch=disturbed)
    assert answers(report)["A5.7"] == "pass"
    assert report.verdict == "healthy", report


# -- too little of the data -------------------------------------------------------------------------


def limited(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """A limit left over from debugging."""
    draw = torch.Generator().manual_seed(8)
    x, y = x[:40], y[:40]
    return x + 2 * torch.randn(x.shape, generator=draw), y


def noisy_rows(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x + 2 * torch.randn(x.shape, generator=torch.Generator().manual_seed(9)), y


def test_a_few_examples_learned_by_heart_are_suspected(tmp_path: Path) -> None:
    report = train(tmp_path, rows=limited, held_out=noisy_rows, steps=400)
    assert report.verdict in ("suspect", "fault")
    assert answers(report)["V1.6"] == "by-heart"


def test_one_batch_over_and_over_is_suspected_and_not_called_overfitting(tmp_path: Path) -> None:
    report = train(tmp_path, rows=lambda x, y: limited(x[:32], y[:32]), held_out=noisy_rows, steps=400)
    assert headline(report) == ("V1.6", "by-heart")


def test_a_few_examples_that_are_enough_are_healthy(tmp_path: Path) -> None:
    report = train(tmp_path, rows=lambda x, y: (x[:60], y[:60]), steps=400)
    assert answers(report)["V1.6"] == "moves-on"
    assert report.verdict == "healthy", report
