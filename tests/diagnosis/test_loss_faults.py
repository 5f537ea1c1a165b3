"""Losses that are computed wrongly: axis, range, sign, weights, copies. Each program beside its healthy twin."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from test_never_healthy import Task, adam, classifier, train
from test_parts import found
from torch import Tensor, nn
from torch.nn import functional

import steadyrun

LossFn = Callable[[Tensor, Tensor], Tensor]


def update(run: steadyrun.Run, optimizer: torch.optim.Optimizer, loss: Tensor, batch: object = None) -> None:
    """The plain end of a step, recorded."""
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad()
    run.step(loss, batch=batch)


@pytest.mark.parametrize(
    ("loss_fn", "answer"),
    [
        (lambda scores, labels: functional.nll_loss(scores.log_softmax(0), labels), "wrong-axis"),
        (lambda scores, labels: functional.nll_loss(scores.softmax(0).log(), labels), "wrong-axis"),
        (lambda scores, labels: functional.nll_loss(scores.log_softmax(1), labels), "pass"),
        (
            lambda scores, labels: functional.nll_loss(scores.view(8, 4, -1).log_softmax(2).flatten(0, 1), labels),
            "pass",
        ),
    ],
)
def test_a_softmax_over_the_batch(loss_fn: LossFn, answer: str, tmp_path: Path) -> None:
    model = classifier()
    with steadyrun.record(tmp_path / "run", config={"num_classes": 10}) as run:
        optimizer = adam(model)
        run.watch(model, optimizer, capture=False)
        for inputs, labels in Task().batches(60):
            loss = loss_fn(model(inputs), labels)
            update(run, optimizer, loss)
    report = steadyrun.check(tmp_path / "run")
    assert found(report, "A3.1") == answer, str(report)
    assert (report.headline is not None and report.headline.question.code == "A3.1") == (answer != "pass"), str(report)


def regress(folder: Path, loss_of: Callable[[Tensor, Tensor], Tensor], *, binary: bool = False) -> steadyrun.Report:
    """Four numbers (or four yes and no, a fifth of them yes) from twelve."""
    torch.manual_seed(0)
    draw = torch.Generator().manual_seed(1)
    rule = torch.randn(12, 4, generator=draw)
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with steadyrun.record(folder) as run:
        run.watch(model, optimizer, capture=False)
        for _ in range(320):
            inputs = torch.randn(32, 12, generator=draw)
            numbers = inputs @ rule / 3
            targets = (numbers > 0.9).float() if binary else numbers
            loss = loss_of(model(inputs), targets)
            update(run, optimizer, loss, (inputs, targets))
    return steadyrun.check(folder)


@pytest.mark.parametrize(
    ("loss_of", "answer"),
    [
        (lambda out, targets: functional.mse_loss(out.relu(), targets), "out-of-reach"),
        (lambda out, targets: functional.smooth_l1_loss(0.2 * out.tanh(), targets), "out-of-reach"),
        (lambda out, targets: (out - targets).square().mean(), "pass"),
        (lambda out, targets: functional.mse_loss(20 * out.sigmoid() - 10, targets), "pass"),
        (lambda out, targets: -functional.mse_loss(out.tanh(), targets / 10), "rewards-errors"),
    ],
)
def test_outputs_beyond_their_range_and_signs(loss_of: LossFn, answer: str, tmp_path: Path) -> None:
    report = regress(tmp_path / "run", loss_of)
    assert found(report, "A3.1") == answer, str(report)


@pytest.mark.parametrize(
    ("loss_of", "answer"),
    [
        (lambda out, targets: functional.binary_cross_entropy_with_logits(out.relu(), targets), "out-of-reach"),
        (lambda out, targets: functional.binary_cross_entropy(out.softmax(1), targets), "out-of-reach"),
        (lambda out, targets: functional.binary_cross_entropy(out.sigmoid(), targets), "pass"),
        (
            lambda out, targets: functional.binary_cross_entropy_with_logits(
                out, targets, pos_weight=torch.tensor(500.0)
            ),
            "one-sided",
        ),
        (
            lambda out, targets: functional.binary_cross_entropy_with_logits(
                out, targets, pos_weight=torch.tensor(4.0)
            ),
            "pass",
        ),
    ],
)
def test_yes_and_no(loss_of: LossFn, answer: str, tmp_path: Path) -> None:
    report = regress(tmp_path / "run", loss_of, binary=True)
    assert found(report, "A3.1") == answer, str(report)


@pytest.mark.parametrize(("logarithms", "answer"), [(True, "pass"), (False, "not-logarithms")])
def test_a_divergence_wants_logarithms(logarithms: bool, answer: str, tmp_path: Path) -> None:
    """Distillation: the soft answers of a teacher, and a student that gives probabilities instead of logarithms."""
    teacher = classifier()

    def loss_fn(scores: Tensor, labels: Tensor) -> Tensor:
        given = scores.log_softmax(1) if logarithms else scores.softmax(1)
        soft = functional.one_hot(labels, 10).float() * 0.8 + 0.02
        return functional.kl_div(given, soft, reduction="batchmean") + 0.1 * functional.cross_entropy(scores, labels)

    report = train(tmp_path / "run", Task(), teacher, adam(teacher), loss_fn=loss_fn, steps=100)
    assert found(report, "A3.1") == answer, str(report)


class TwoHeads(nn.Module):
    """A class and a number of every input, from one narrow body."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.kind, self.size = nn.Linear(20, 8), nn.Linear(8, 10), nn.Linear(8, 4)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        hidden = functional.relu(self.body(inputs))
        return self.kind(hidden), self.size(hidden)


@pytest.mark.parametrize(("weight", "answer"), [(1e5, "term-left-behind"), (1.0, "beats")])
def test_a_term_that_outweighs_the_other(weight: float, answer: str, tmp_path: Path) -> None:
    task, clip = Task(), 1.0
    torch.manual_seed(0)
    rule = torch.randn(20, 4)
    model = TwoHeads()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with steadyrun.record(tmp_path / "run", config={"init": "random"}) as run:
        run.watch(model, optimizer, capture=False)
        for inputs, labels in task.batches(400):
            kind, size = model(inputs)
            near = functional.smooth_l1_loss(size, inputs @ rule)
            loss = functional.cross_entropy(kind, labels) + weight * near
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss, batch=(inputs, labels))
    report = steadyrun.check(tmp_path / "run")
    assert found(report, "V1.2") == answer, str(report)
    assert report.verdict == ("suspect" if answer != "beats" else "healthy"), str(report)


@pytest.mark.parametrize(("weight", "answer"), [(1e-6, "term-left-behind"), (10.0, "not-applicable")])
def test_a_condition_that_hardly_counts(weight: float, answer: str, tmp_path: Path) -> None:
    """An equation, u' = -u, whose start u(0) = 1 has a weight; without it, 0 is a solution."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with steadyrun.record(tmp_path / "run") as run:
        run.watch(model, optimizer, capture=False)
        for _ in range(500):
            time = (2 * torch.rand(32, 1)).requires_grad_()
            value = model(time)
            (slope,) = torch.autograd.grad(value.sum(), time, create_graph=True)
            begin = (model(torch.zeros(1, 1)) - 1).square().mean()
            loss = (slope + value).square().mean() + weight * begin
            update(run, optimizer, loss)
    report = steadyrun.check(tmp_path / "run")
    assert found(report, "V1.2") == answer, str(report)


@pytest.mark.parametrize(
    ("views", "answer"), [("one", "same-twice"), ("two", "not-applicable"), ("dropout", "not-applicable")]
)
def test_one_view_used_twice(views: str, answer: str, tmp_path: Path) -> None:
    task = Task()
    torch.manual_seed(0)
    drop = nn.Dropout(0.2 if views == "dropout" else 0.0)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), drop, nn.Linear(64, 16))
    optimizer = adam(model)
    with steadyrun.record(tmp_path / "run") as run:
        run.watch(model, optimizer, capture=False)
        for inputs, _ in task.batches(120):
            first = inputs + 0.3 * torch.randn_like(inputs)
            second = inputs + 0.3 * torch.randn_like(inputs) if views == "two" else first
            one, two = (functional.normalize(model(view), dim=1) for view in (first, second))
            loss = functional.cross_entropy(one @ two.T / 0.2, torch.arange(len(one)))
            update(run, optimizer, loss)
    report = steadyrun.check(tmp_path / "run")
    assert found(report, "A5.9") == answer, str(report)


@pytest.mark.parametrize(
    ("every", "answer"),
    [(None, "target-stands-still"), (50, "pass"), ("average", "pass"), ("no copy", "not-applicable")],
)
def test_a_target_network(every: int | str | None, answer: str, tmp_path: Path) -> None:
    """Values of the next state come from a copy of the network, which is to be updated."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))
    target, optimizer = copy.deepcopy(model), torch.optim.Adam(model.parameters(), lr=5e-3)
    with steadyrun.record(tmp_path / "run", config={"init": "random"}) as run:
        run.watch(model, optimizer, capture=False)
        for step in range(500):
            state, after = torch.randn(64, 6), torch.randn(64, 6)
            values = model(state).amax(1)
            with torch.no_grad():
                later = (model if every == "no copy" else target)(after).amax(1)
            loss = functional.mse_loss(values, state[:, 0] + 0.9 * later)
            update(run, optimizer, loss)
            if isinstance(every, int) and step % every == 0:
                target.load_state_dict(model.state_dict())
            if every == "average":
                with torch.no_grad():
                    for old, new in zip(target.parameters(), model.parameters(), strict=True):
                        old.lerp_(new, 0.05)
    report = steadyrun.check(tmp_path / "run")
    assert found(report, "A2.5") == answer, str(report)


@pytest.mark.parametrize(("loaded", "answer"), [(False, "perhaps-at-random"), (True, "pass")])
def test_a_frozen_body_that_was_not_loaded(loaded: bool, answer: str, tmp_path: Path) -> None:
    body, task = classifier(), Task()
    if loaded:
        for inputs, labels in task.batches(100):
            functional.cross_entropy(body(inputs), labels).backward()
            with torch.no_grad():
                for parameter in body.parameters():
                    parameter -= 0.1 * parameter.grad  # type: ignore[operator]
                    parameter.grad = None
    body.requires_grad_(requires_grad=False)
    model = nn.Sequential(body, nn.Linear(10, 10))
    optimizer = torch.optim.Adam(model[1].parameters(), lr=1e-2)
    with steadyrun.record(tmp_path / "run", config={"init": "pretrained", "num_classes": 10}) as run:
        run.watch(model, optimizer, capture=False)
        for inputs, labels in task.batches(100):
            loss = functional.cross_entropy(model(inputs), labels)
            update(run, optimizer, loss)
    assert found(steadyrun.check(tmp_path / "run"), "A4.4") == answer


@pytest.mark.parametrize(("sign", "answer"), [(-1.0, "rose"), (1.0, "fell"), (0.0, "not-applicable")])
def test_a_policy_whose_value_function_shows_the_return(sign: float, answer: str, tmp_path: Path) -> None:
    """A bandit with four arms; the return of each pull teaches the value."""
    torch.manual_seed(0)
    gains = torch.tensor([-1.0, 0.0, 0.5, 1.0])
    model = nn.Linear(3, 5)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    with steadyrun.record(tmp_path / "run") as run:
        run.watch(model, optimizer, capture=False)
        for _ in range(500):
            out = model(torch.randn(64, 3))
            chances = out[:, :4].log_softmax(1)
            pulled = torch.multinomial(chances.detach().exp(), 1)
            returns = gains[pulled.squeeze(1)] + 0.1 * torch.randn(64)
            advantage = returns - out[:, 4].detach()
            policy = (chances.gather(1, pulled).squeeze(1) * advantage).mean()
            loss = sign * policy + functional.mse_loss(out[:, 4], returns) + 0.0 * policy
            update(run, optimizer, loss)
    report = steadyrun.check(tmp_path / "run")
    assert found(report, "V1.8") == answer, str(report)


class Texts(nn.Module):
    """The mean of words and places, with or without the places."""

    def __init__(self, *, places: bool) -> None:
        super().__init__()
        self.words, self.places, self.head = nn.Embedding(30, 16), nn.Embedding(6, 16), nn.Linear(6 * 16, 5)
        self.uses_places = places

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.words(ids)
        if self.uses_places:
            hidden = hidden + self.places(torch.arange(6))
        return self.head(hidden.flatten(1))


@pytest.mark.parametrize(("places", "answer"), [(False, "table-unused"), (True, "pass")])
def test_an_embedding_that_is_forgotten(places: bool, answer: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Texts(places=places)
    optimizer = adam(model)
    with steadyrun.record(tmp_path / "run", config={"num_classes": 5}) as run:
        run.watch(model, optimizer, capture=False)
        for _ in range(100):
            ids = torch.randint(30, (32, 6))
            loss = functional.cross_entropy(model(ids), ids[:, 2] % 5)
            update(run, optimizer, loss)
    report = steadyrun.check(tmp_path / "run")
    assert found(report, "A4.3") == answer, str(report)


@pytest.mark.parametrize(
    ("lost", "code", "answer"),
    [
        ("average", "A2.5", "lost-at-resume"),
        ("weights", "A6.2", "back-at-start"),
        ("", "A2.5", "pass"),
        ("", "A6.2", "pass"),
    ],
)
def test_what_a_resume_loses(lost: str, code: str, answer: str, tmp_path: Path) -> None:
    task, model = Task(), classifier()
    average, fresh = copy.deepcopy(model), copy.deepcopy(model)
    for first in (0, 300):
        if first and lost == "average":
            average = copy.deepcopy(fresh)
        if first and lost == "weights":
            model.load_state_dict(fresh.state_dict())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        with steadyrun.record(tmp_path / "run", config={"num_classes": 10}) as run:
            run.watch(model, optimizer, capture=False)
            for step, (inputs, labels) in enumerate(task.batches(300), start=first):
                loss = functional.cross_entropy(model(inputs), labels)
                update(run, optimizer, loss)
                with torch.no_grad():
                    for old, new in zip(average.parameters(), model.parameters(), strict=True):
                        old.lerp_(new, 0.01)
                    if step % 20 == 19:
                        run.val(functional.cross_entropy(average(task.held_out[0]), task.held_out[1]))
    report = steadyrun.check(tmp_path / "run")
    assert found(report, code) == answer, str(report)
