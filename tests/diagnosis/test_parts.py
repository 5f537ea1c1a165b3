"""Parts of a program that do nothing, or the wrong thing, while the loss still falls. Each beside its healthy twin."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from test_never_healthy import Task, adam, classifier, sgd, train
from torch import Tensor, nn
from torch.nn import functional

import steadyrun


def found(report: steadyrun.Report, code: str) -> str:
    """What a question answered."""
    return next(asked.answer.outcome for asked in report.walk.path if asked.question.code == code)


def accumulate(folder: Path, *, clears: bool, declared: bool, looks_ahead: bool = False) -> steadyrun.Report:
    task, model = Task(), classifier()
    optimizer = sgd(model, 0.02)
    config = {"num_classes": 10, "init": "random"} | ({"accumulation": 4} if declared else {})
    batches = list(task.batches(800))
    with steadyrun.record(folder, config=config) as run:
        run.watch(model, optimizer, capture=False)
        for start in range(0, 800, 4):
            losses = []
            for inputs, labels in batches[start : start + 4]:
                if clears:
                    optimizer.zero_grad()
                loss = functional.cross_entropy(model(inputs), labels)
                (loss / 4).backward()
                losses.append(loss.detach())
            optimizer.step()
            optimizer.zero_grad()
            run.step(torch.stack(losses).mean(), batch=batches[start : start + 4])
    return steadyrun.check(folder)


@pytest.mark.parametrize(
    ("clears", "declared", "answer", "verdict"),
    [(True, True, "erased", "fault"), (True, False, "perhaps-erased", "suspect"), (False, True, "pass", "healthy")],
)
def test_micro_batches_that_are_lost(clears: bool, declared: bool, answer: str, verdict: str, tmp_path: Path) -> None:
    report = accumulate(tmp_path / "run", clears=clears, declared=declared)
    assert found(report, "A1.4") == answer, str(report)
    assert report.verdict == verdict, str(report)


def test_two_losses_that_take_turns_lose_nothing(tmp_path: Path) -> None:
    first, second = nn.Linear(4, 4), nn.Linear(4, 1)
    both = nn.ModuleList([first, second])
    optimizer = torch.optim.SGD(both.parameters(), lr=0.01)
    with steadyrun.record(tmp_path / "run") as run:
        run.watch(both, optimizer, capture=False)
        for _ in range(60):
            inputs = torch.randn(8, 4)
            first(inputs).square().mean().backward()
            loss = second(first(inputs).detach()).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss)
    assert found(steadyrun.check(tmp_path / "run"), "A1.4") == "not-applicable"


@pytest.mark.parametrize(("momentum", "answer"), [(0.0, "untouched"), (0.1, "pass"), (None, "pass"), (0.001, "pass")])
def test_running_statistics(momentum: float | None, answer: str, tmp_path: Path) -> None:
    model = classifier(norm=lambda width: nn.BatchNorm1d(width, momentum=momentum))
    report = train(tmp_path / "run", Task(offset=3.0), model, adam(model), steps=150)
    assert found(report, "A2.4") == answer
    if answer == "untouched":
        assert report.headline is not None
        assert report.headline.question.code == "A2.4"


class Reader(nn.Module):
    """Reads padded rows of tokens; `masks` hides padding from attention."""

    def __init__(self, *, masks: bool, by_hand: bool) -> None:
        super().__init__()
        self.masks, self.by_hand = masks, by_hand
        self.embed = nn.Embedding(12, 16)
        self.blocks = nn.ModuleList([Attends(by_hand) for _ in range(2)])
        self.head = nn.Linear(16, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden, padding = self.embed(tokens), tokens == 0
        for block in self.blocks:
            hidden = block(hidden, padding if self.masks else None)
        kept = (~padding).float()[..., None]
        scores: Tensor = self.head((hidden * kept).sum(1) / kept.sum(1))
        return scores


class Attends(nn.Module):
    def __init__(self, by_hand: bool) -> None:
        super().__init__()
        self.by_hand = by_hand
        self.mix = nn.Linear(16, 48)
        self.heads = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, hidden: Tensor, padding: Tensor | None) -> Tensor:
        if not self.by_hand:
            return hidden + self.heads(hidden, hidden, hidden, key_padding_mask=padding, need_weights=False)[0]
        query, key, value = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in self.mix(hidden).chunk(3, -1))
        mask = None if padding is None else ~padding[:, None, None, :]
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return hidden + mixed.transpose(1, 2).flatten(2)


@pytest.mark.parametrize("by_hand", [True, False])
@pytest.mark.parametrize(("masks", "answer"), [(True, "pass"), (False, "seems-attended")])
def test_padding_in_attention(masks: bool, answer: str, by_hand: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Reader(masks=masks, by_hand=by_hand)
    optimizer = adam(model)
    with steadyrun.record(tmp_path / "run", config={"pad_id": 0, "num_classes": 3}) as run:
        run.watch(model, optimizer, capture=False)
        for _ in range(120):
            tokens = torch.randint(1, 12, (16, 10))
            lengths = torch.randint(3, 11, (16, 1))
            labels = tokens[:, 0] % 3
            tokens = tokens * (torch.arange(10) < lengths)
            loss = functional.cross_entropy(model(tokens), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss, batch=(tokens, labels))
    assert found(steadyrun.check(tmp_path / "run"), "A8.1") == answer


@pytest.mark.parametrize(("width", "answer"), [(1.0, "pass"), (60.0, "no-slope")])
def test_units_at_the_ends_of_their_range(width: float, answer: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 10))
    with torch.no_grad():
        for layer in model[:3:2]:
            layer.weight.mul_(width)
    report = train(tmp_path / "run", Task(), model, sgd(model, 0.01))
    assert found(report, "S6.3") == answer, str(report)


def resumed(folder: Path, *, restores: bool) -> steadyrun.Report:
    task = Task()
    batches = list(task.batches(400))
    model = classifier()
    optimizer = adam(model)
    for attempt, part in enumerate((batches[:200], batches[200:])):
        if attempt and not restores:
            model = classifier()
            optimizer = adam(model)
        with steadyrun.record(folder, config={"num_classes": 10, "init": "random"}, resume=bool(attempt)) as run:
            run.watch(model, optimizer, capture=False)
            for inputs, labels in part:
                loss = functional.cross_entropy(model(inputs), labels)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                run.step(loss, batch=(inputs, labels))
    return steadyrun.check(folder)


@pytest.mark.parametrize(("restores", "answer"), [(True, "pass"), (False, "back-at-start")])
def test_a_resume_that_loses_the_weights(restores: bool, answer: str, tmp_path: Path) -> None:
    report = resumed(tmp_path / "run", restores=restores)
    assert found(report, "A6.2") == answer, str(report)
    assert (report.verdict == "healthy") is restores, str(report)


def test_a_healthy_classifier_has_none_of_it(tmp_path: Path) -> None:
    norm: Callable[[int], nn.Module] = nn.BatchNorm1d
    model = classifier(norm=norm)
    report = train(tmp_path / "run", Task(), model, adam(model))
    assert report.verdict == "healthy", str(report)


def averaged(folder: Path, decay: float, *, updates: bool = True, buffers: bool = True) -> steadyrun.Report:
    """Validates an average of the weights instead of the weights."""
    task, model = Task(), classifier(norm=nn.BatchNorm1d)
    optimizer = adam(model)
    average = copy.deepcopy(model)
    with steadyrun.record(folder, config={"num_classes": 10, "init": "random"}) as run:
        run.watch(model, optimizer, capture=False)
        for step, (inputs, labels) in enumerate(task.batches(400)):
            loss = functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if updates:
                with torch.no_grad():
                    for mean, now in zip(average.parameters(), model.parameters(), strict=True):
                        mean.lerp_(now, 1 - decay)
                    for kept, now in zip(average.buffers(), model.buffers(), strict=True):
                        kept.copy_(now if buffers else kept)
            run.step(loss, batch=(inputs, labels))
            if step % 50 == 49:
                average.eval()
                with torch.no_grad():
                    inputs, labels = task.held_out
                    run.val(functional.cross_entropy(average(inputs), labels))
    return steadyrun.check(folder)


@pytest.mark.parametrize(
    ("decay", "updates", "buffers", "answer"),
    [
        (0.95, True, True, "pass"),
        (0.95, False, True, "never-moves"),
        (0.95, True, False, "statistics-left-behind"),
        (0.9999, True, True, "lags"),
    ],
)
def test_an_average_that_is_validated(decay: float, updates: bool, buffers: bool, answer: str, tmp_path: Path) -> None:
    report = averaged(tmp_path / "run", decay, updates=updates, buffers=buffers)
    assert found(report, "A2.5") == answer, str(report)
    assert (report.verdict == "healthy") is (answer == "pass"), str(report)


def test_a_teacher_of_the_same_class_is_no_copy_that_is_validated(tmp_path: Path) -> None:
    task, model, teacher = Task(), classifier(), classifier()
    for module in teacher.children():  # a network of its own
        if isinstance(module, nn.Linear):
            module.reset_parameters()
    optimizer = adam(model)
    with steadyrun.record(tmp_path / "run", config={"num_classes": 10}) as run:
        run.watch(model, optimizer, capture=False)
        for step, (inputs, labels) in enumerate(task.batches(120)):
            with torch.no_grad():
                teacher(inputs)
            loss = functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss, batch=(inputs, labels))
            if step % 30 == 29:
                model.eval()
                with torch.no_grad():
                    inputs, labels = task.held_out
                    run.val(functional.cross_entropy(model(inputs), labels))
                model.train()
    assert found(steadyrun.check(tmp_path / "run"), "A2.5") in ("not-applicable", "pass")


class Functional(nn.Module):
    """Convolutions whose activations are functions; a bias of `bias` kills the units of the first."""

    def __init__(self, bias: float) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 8, 3), nn.Linear(32, 2)
        nn.init.constant_(self.first.bias, bias)  # type: ignore[arg-type]

    def forward(self, pictures: Tensor) -> Tensor:
        hidden = functional.relu(self.second(functional.relu(self.first(pictures))))
        scores: Tensor = self.head(functional.max_pool2d(hidden, 2).flatten(1))
        return scores


@pytest.mark.parametrize(("bias", "answer"), [(0.1, "pass"), (-50.0, "sparse")])
def test_dead_units_behind_a_function(bias: float, answer: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Functional(bias)
    optimizer = adam(model)
    with steadyrun.record(tmp_path / "run", config={"num_classes": 2}) as run:
        run.watch(model, optimizer, capture=False)
        for _ in range(250):
            labels = torch.randint(2, (16,))
            pictures = torch.randn(16, 1, 8, 8) + labels[:, None, None, None]
            loss = functional.cross_entropy(model(pictures), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss, batch=(pictures, labels))
    report = steadyrun.check(tmp_path / "run", everything=True)
    assert found(report, "S6.1") == answer, str(report)
    assert (report.verdict == "healthy") is (answer == "pass"), str(report)


def pairs(folder: Path, *, negatives: bool) -> steadyrun.Report:
    """Two noisy views of a point are to get similar codes; without negatives one code fits all."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
    optimizer = adam(model, 1e-2)
    with steadyrun.record(folder) as run:
        run.watch(model, optimizer, capture=False)
        for _ in range(400):
            points = torch.randn(32, 16)
            first, second = (functional.normalize(model(points + torch.randn(32, 16)), dim=1) for _ in range(2))
            loss = (first - second).square().sum(1).mean()
            if negatives:
                loss = loss + torch.logsumexp(first @ second.T / 0.2, 1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.step(loss, batch=(points,))
    return steadyrun.check(folder)


@pytest.mark.parametrize(("negatives", "answer"), [(True, "pass"), (False, "collapsed")])
def test_codes_that_are_all_the_same(negatives: bool, answer: str, tmp_path: Path) -> None:
    assert found(pairs(tmp_path / "run", negatives=negatives), "S4.3") == answer


def regression(folder: Path, *, offset: float = 0.0, constant: bool = False) -> steadyrun.Report:
    """A sum of sines of the inputs, which may lie far from zero; or a target that is always the same."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = adam(model, 1e-3)
    with steadyrun.record(folder) as run:
        run.watch(model, optimizer, capture=False)
        for _ in range(500):
            inputs = torch.randn(32, 6)
            targets = torch.ones(32, 1) if constant else inputs.sin().sum(1, keepdim=True)
            loss = functional.mse_loss(model(inputs + offset), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.step(loss, batch=(inputs + offset, targets))
    return steadyrun.check(folder)


def test_inputs_in_raw_units(tmp_path: Path) -> None:
    raw, scaled = regression(tmp_path / "raw", offset=300.0), regression(tmp_path / "scaled")
    assert (found(raw, "A5.8"), found(scaled, "A5.8")) == ("not-scaled", "pass"), str(raw)
    assert scaled.verdict == "healthy", str(scaled)
    assert raw.headline is not None
    assert raw.headline.question.code == "A5.8", str(raw)


def test_targets_that_are_all_the_same(tmp_path: Path) -> None:
    report = regression(tmp_path / "run", constant=True)
    assert found(report, "A5.9") == "constant"
    assert report.verdict == "suspect", str(report)
