"""PPO on CartPole, written plainly: a healthy run, and bugs that people write."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

import steadyrun

ENVIRONMENTS, HORIZON, EPOCHS, PARTS = 16, 64, 4, 4
DISCOUNT, TRACE, CLIP = 0.98, 0.95, 0.2


class CartPoles:
    """Many carts at once: Euler steps of the textbook equations; an episode ends at an angle, an edge or 500 steps."""

    def __init__(self, count: int) -> None:
        self._random = np.random.default_rng(0)
        self.state = self._fresh(count)
        self.age = np.zeros(count)

    def _fresh(self, count: int) -> np.ndarray:
        return self._random.uniform(-0.05, 0.05, (count, 4))

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[float]]:
        """Rewards, which episodes ended, and the lengths of these; ended carts start again."""
        _place, speed, angle, turn = self.state.T
        force = np.where(actions == 1, 10.0, -10.0)
        sine, cosine = np.sin(angle), np.cos(angle)
        pushed = (force + 0.05 * turn**2 * sine) / 1.1
        turning = (9.8 * sine - cosine * pushed) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        moving = pushed - 0.05 * turning * cosine / 1.1
        change = np.stack([speed, moving, turn, turning], 1)
        self.state = self.state + 0.02 * change
        self.age += 1
        ended = (np.abs(self.state[:, 0]) > 2.4) | (np.abs(self.state[:, 2]) > 0.2095) | (self.age >= 500)
        lengths = self.age[ended].tolist()
        self.state[ended] = self._fresh(int(ended.sum()))
        self.age[ended] = 0
        return np.ones(len(ended)), ended, lengths


class ActorCritic(nn.Module):
    """Two small networks: one for actions, one for values."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, states: Tensor) -> tuple[Categorical, Tensor]:
        return Categorical(logits=self.actor(states)), self.critic(states)[:, 0]


def ppo(folder: Path, bug: str = "", updates: int = 60, seed: int = 0) -> steadyrun.Report:
    """Train and check; `bug` names what is wrong."""
    torch.manual_seed(seed)
    model, carts = ActorCritic(), CartPoles(ENVIRONMENTS)
    optimizer = torch.optim.Adam(model.parameters(), lr={"rate": 0.3}.get(bug, 3e-3))
    lengths: list[float] = [20.0]
    with steadyrun.record(folder, flush_seconds=60) as run:
        run.watch(model, optimizer, capture=False, monitor=False)
        for _ in range(updates):
            states, actions, logps, advantages, returns, values, ended = rollout(model, carts, bug)
            lengths += ended
            for _ in range(EPOCHS):
                for chosen in torch.randperm(len(states)).chunk(PARTS):
                    policy, value = model(states[chosen])
                    ratio = torch.exp(policy.log_prob(actions[chosen]) - logps[chosen])
                    gain = advantages[chosen]
                    gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                    if bug == "sign":
                        gain = -gain
                    surrogate = torch.min(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain).mean()
                    value_loss = (value - returns[chosen]).pow(2).mean()
                    bonus = {"entropy": -20.0}.get(bug, 0.01) * policy.entropy().mean()
                    loss = -surrogate + 0.5 * value_loss - bonus
                    loss.backward()
                    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                    optimizer.step()
                    optimizer.zero_grad()
                    run.step(loss, batch=(states[chosen], actions[chosen]))
            explained = 1 - (returns - values).var() / returns.var()
            run.log(
                episodic_return=float(np.mean(lengths[-50:])),
                entropy=policy.entropy().mean(),
                approx_kl=(ratio - 1 - ratio.log()).mean(),
                clip_fraction=((ratio - 1).abs() > CLIP).float().mean(),
                explained_variance=explained,
            )
    return steadyrun.check(folder)


def rollout(model: ActorCritic, carts: CartPoles, bug: str) -> tuple[Tensor, ...]:
    """Play `HORIZON` steps in every environment; generalised advantages, and the returns they imply."""
    kept: list[tuple[Tensor, ...]] = []
    lengths: list[float] = []
    for _ in range(HORIZON):
        states = torch.as_tensor(carts.state, dtype=torch.float32)
        with torch.no_grad():
            policy, values = model(states)
            actions = policy.sample()
        rewards, ended, new = carts.step(actions.numpy())
        lengths += new
        going = torch.as_tensor(~ended, dtype=torch.float32)
        kept.append((states, actions, policy.log_prob(actions), values, torch.as_tensor(rewards).float(), going))
    states, actions, logps, values, rewards, going = (torch.stack(column) for column in zip(*kept, strict=True))
    with torch.no_grad():
        following = torch.cat([values[1:], model(torch.as_tensor(carts.state, dtype=torch.float32))[1][None]])
    advantages, trace = torch.zeros_like(rewards), torch.zeros(ENVIRONMENTS)
    for step in reversed(range(HORIZON)):
        surprise = rewards[step] + DISCOUNT * following[step] * going[step] - values[step]
        trace = surprise + DISCOUNT * TRACE * going[step] * trace
        advantages[step] = trace
    returns = advantages + values
    if bug == "targets":  # the returns of other states
        returns = returns.flatten()[torch.randperm(returns.numel())].view_as(returns)
        advantages = returns - values
    flat = [column.flatten(0, 1) for column in (states, actions, logps, advantages, returns, values)]
    return (*flat, lengths)  # type: ignore[return-value]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_healthy_ppo_is_quiet(tmp_path: Path, seed: int) -> None:
    report = ppo(tmp_path / "run", seed=seed)
    assert report.verdict == "healthy", str(report)


@pytest.mark.parametrize(
    ("bug", "codes"),
    [
        ("sign", {"V1.8"}),
        pytest.param("targets", {"G2.5"}, marks=pytest.mark.slow),
        pytest.param("entropy", {"G2.2"}, marks=pytest.mark.slow),
        pytest.param("rate", {"V1.8"}, marks=pytest.mark.slow),
    ],
)
def test_a_broken_ppo_is_suspect(tmp_path: Path, bug: str, codes: set[str]) -> None:
    report = ppo(tmp_path / "run", bug)
    found = {asked.question.code for asked in report.suspects}
    assert report.verdict in {"suspect", "fault"}, str(report)
    assert found & codes, str(report)
