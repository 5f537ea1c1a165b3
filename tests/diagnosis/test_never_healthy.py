"""Broken programs that a stranger saw end in "healthy": each must be at least suspect. And their healthy twins."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import steadyrun

Batch = tuple[Tensor, Tensor]
CLASSES, WIDTH, STEPS = 10, 20, 400


class Task:
    """Ten classes of points around their centres; `shuffled` takes the labels from other points."""

    def __init__(self, *, shuffled: bool = False, offset: float = 0.0, size: int = 640) -> None:
        generator = torch.Generator().manual_seed(3)
        centres = 1.2 * torch.randn(CLASSES, WIDTH, generator=generator)
        self.labels = torch.randint(CLASSES, (size + 320,), generator=generator)
        self.inputs = centres[self.labels] + torch.randn(size + 320, WIDTH, generator=generator) + offset
        if shuffled:
            self.labels = self.labels[torch.randperm(size + 320, generator=generator)]
        self.size, self._generator = size, generator

    def batches(self, steps: int) -> Iterator[Batch]:
        for _ in range(steps):
            chosen = torch.randint(self.size, (32,), generator=self._generator)
            yield self.inputs[chosen], self.labels[chosen]

    @property
    def held_out(self) -> Batch:
        return self.inputs[self.size :], self.labels[self.size :]


def classifier(hidden: int = 64, norm: Callable[[int], nn.Module] | None = None) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(WIDTH, hidden), norm(hidden) if norm else nn.Identity(), nn.ReLU(), nn.Linear(hidden, CLASSES)
    )


def train(
    folder: Path,
    task: Task,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    loss_fn: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy,
    rate: Callable[[int], float] | None = None,
    steps: int = STEPS,
) -> steadyrun.Report:
    base = optimizer.param_groups[0]["lr"]
    with steadyrun.record(folder, config={"num_classes": CLASSES, "init": "random"}) as run:
        run.watch(model, optimizer, capture=False)
        for step, (inputs, labels) in enumerate(task.batches(steps)):
            optimizer.param_groups[0]["lr"] = base * (rate(step) if rate else 1.0)
            loss = loss_fn(model(inputs), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss, batch=(inputs, labels))
            if step % 50 == 49:
                model.eval()
                with torch.no_grad():
                    inputs, labels = task.held_out
                    run.val(loss_fn(model(inputs), labels))
                model.train()
    return steadyrun.check(folder)


def sgd(model: nn.Module, lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def adam(model: nn.Module, lr: float = 3e-3) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=lr)


def rate_of_three(folder: Path) -> steadyrun.Report:
    """SGD with a rate of 3: the loss explodes, every unit dies, and it rests near ln 10."""
    model = classifier()
    return train(folder, Task(), model, sgd(model, 3.0))


def statistics_that_never_move(folder: Path) -> steadyrun.Report:
    """BatchNorm with momentum 0 and inputs far from 0: evaluation divides by the initial statistics."""
    model = classifier(norm=lambda width: nn.BatchNorm1d(width, momentum=0.0))
    return train(folder, Task(offset=30.0), model, adam(model))


def labels_of_other_points(folder: Path) -> steadyrun.Report:
    """Labels that were shuffled without their inputs: only memorising helps."""
    model = classifier(hidden=256)
    return train(folder, Task(shuffled=True), model, adam(model))


def ends_above_its_best(folder: Path) -> steadyrun.Report:
    """The rate is raised a hundredfold for the last third: the loss climbs back and stays there."""
    model = classifier()
    return train(folder, Task(), model, adam(model), rate=lambda step: 1.0 if step < 270 else 100.0)


def loss_that_swings(folder: Path, rate: float = 1.0, momentum: float = 0.98) -> steadyrun.Report:
    """SGD with a momentum that throws it past every valley: the loss goes up and down and does not diverge."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, 64), nn.Tanh(), nn.Linear(64, CLASSES))
    return train(folder, Task(), model, torch.optim.SGD(model.parameters(), lr=rate, momentum=momentum))


def probabilities_to_cross_entropy(folder: Path) -> steadyrun.Report:
    """exp(log_softmax) before a cross-entropy: the loss cannot fall below 1.46."""
    model = classifier()

    def loss_fn(scores: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(functional.log_softmax(scores, 1).exp(), labels)

    return train(folder, Task(), model, sgd(model, 0.05), loss_fn=loss_fn)


class Autoencoder(nn.Module):
    """A small variational autoencoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.mean, self.spread = nn.Linear(64, 64), nn.Linear(64, 8), nn.Linear(64, 8)
        self.expand, self.decode = nn.Linear(8, 64), nn.Linear(64, 64)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = functional.relu(self.encode(inputs))
        mean, spread = self.mean(hidden), self.spread(hidden)
        code = mean + torch.randn_like(mean) * (spread / 2).exp()
        return torch.sigmoid(self.decode(functional.relu(self.expand(code)))), mean, spread


def autoencoder(folder: Path, weight: float, *, by_hand: bool = False) -> steadyrun.Report:
    """Pictures of eight kinds; `weight` is that of the divergence between the code and a normal distribution."""
    torch.manual_seed(0)
    draw = torch.Generator().manual_seed(1)
    kinds = (torch.rand(8, 64, generator=draw) > 0.5).float()
    model = Autoencoder()
    optimizer = adam(model, 1e-3)
    with steadyrun.record(folder) as run:
        run.watch(model, optimizer, capture=False)
        for _ in range(STEPS):
            chosen = kinds[torch.randint(8, (64,), generator=draw)]
            pictures = (chosen + 0.1 * torch.randn(64, 64, generator=draw)).clamp(0, 1)
            copies, mean, spread = model(pictures)
            copied = functional.binary_cross_entropy(copies, pictures, reduction="sum")
            if by_hand:
                copied = (copies - pictures).square().sum()
            loss = (copied - weight * 0.5 * (1 + spread - mean**2 - spread.exp()).sum()) / 64
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.step(loss, batch=(pictures,))
    return steadyrun.check(folder)


class Actor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.scores, self.value = nn.Linear(8, 64), nn.Linear(64, 4), nn.Linear(64, 1)

    def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.tanh(self.body(state))
        return self.scores(hidden), self.value(hidden).squeeze(-1)


def policy(folder: Path, sign: float, *, logged: bool = True) -> steadyrun.Report:
    """Proximal policy optimization on a choice among four actions; `sign` is that of the advantage."""
    torch.manual_seed(0)
    draw = torch.Generator().manual_seed(1)
    worth = torch.randn(8, 4, generator=draw)
    model = Actor()
    optimizer = adam(model, 1e-3)
    with steadyrun.record(folder) as run:
        run.watch(model, optimizer, capture=False)
        for _ in range(60):
            states = torch.randn(256, 8, generator=draw)
            with torch.no_grad():
                scores, value = model(states)
                before = torch.distributions.Categorical(logits=scores)
                actions = before.sample()
                chances = before.log_prob(actions)
                rewards = (states @ worth).gather(1, actions[:, None]).squeeze(1)
                advantages = sign * (rewards - value)
            for rows in torch.randperm(256, generator=draw).repeat(2).split(64):
                scores, value = model(states[rows])
                ratio = (torch.distributions.Categorical(logits=scores).log_prob(actions[rows]) - chances[rows]).exp()
                weighed = torch.maximum(-advantages[rows] * ratio, -advantages[rows] * ratio.clamp(0.8, 1.2)).mean()
                loss = weighed + 0.25 * (value - rewards[rows]).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                run.step(loss, batch=(states[rows], actions[rows]))
            if logged:
                run.log(episodic_return=rewards.mean())
    return steadyrun.check(folder)


def code_that_collapsed(folder: Path) -> steadyrun.Report:
    """A variational autoencoder with fifty times its divergence: it copies nothing, and its loss falls."""
    return autoencoder(folder, 50.0)


def code_that_collapsed_by_hand(folder: Path) -> steadyrun.Report:
    """The same with a squared difference written out."""
    return autoencoder(folder, 50.0, by_hand=True)


def advantage_upside_down(folder: Path) -> steadyrun.Report:
    """A policy that learns what does worst."""
    return policy(folder, -1.0)


BROKEN = [
    code_that_collapsed,
    code_that_collapsed_by_hand,
    advantage_upside_down,
    rate_of_three,
    statistics_that_never_move,
    labels_of_other_points,
    ends_above_its_best,
    loss_that_swings,
    probabilities_to_cross_entropy,
]


@pytest.mark.parametrize("program", BROKEN, ids=lambda program: program.__name__)
def test_a_broken_run_is_never_healthy(program: Callable[[Path], steadyrun.Report], tmp_path: Path) -> None:
    report = program(tmp_path / "run")
    assert report.verdict in {"fault", "suspect"}, str(report)
    assert report.exit_code in {1, 4}
    assert report.headline is not None
    assert report.headline.answer.fix
    assert any(sign.colour == "red" for sign in report.vital_signs) or report.verdict == "fault"


def test_a_smaller_momentum_is_healthy(tmp_path: Path) -> None:
    report = loss_that_swings(tmp_path / "run", 0.05, 0.9)
    assert report.verdict == "healthy", str(report)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("norm", [None, nn.BatchNorm1d], ids=["plain", "batch-norm"])
def test_the_healthy_twin_is_healthy(optimizer: str, norm: Callable[[int], nn.Module] | None, tmp_path: Path) -> None:
    model = classifier(norm=norm)
    report = train(tmp_path / "run", Task(), model, adam(model) if optimizer == "adam" else sgd(model, 0.02))
    assert report.verdict == "healthy", str(report)
    assert report.exit_code == 0
    assert math.isclose(sum(sign.colour == "green" for sign in report.vital_signs), 6, abs_tol=1)


@pytest.mark.parametrize("by_hand", [False, True])
def test_an_autoencoder_that_copies_is_healthy(by_hand: bool, tmp_path: Path) -> None:
    report = autoencoder(tmp_path / "run", 1.0, by_hand=by_hand)
    assert report.verdict == "healthy", str(report)


def test_a_policy_whose_return_rises_is_healthy(tmp_path: Path) -> None:
    report = policy(tmp_path / "run", 1.0)
    assert report.verdict == "healthy", str(report)


@pytest.mark.parametrize(("sign", "verdict"), [(1.0, "healthy"), (-1.0, "suspect")])
def test_without_a_logged_return_the_targets_of_the_value_show_it(sign: float, verdict: str, tmp_path: Path) -> None:
    assert policy(tmp_path / "run", sign, logged=False).verdict == verdict
