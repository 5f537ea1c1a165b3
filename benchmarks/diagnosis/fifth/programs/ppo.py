"""PPO on CartPole, written plainly: eight poles at a time, the physics as in the textbook."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Categorical
from torch.nn.functional import mse_loss

import steadyrun
from diagnosis.fifth.loop import declared
from diagnosis.harness import Config, Log, Record, log_file

LIMITS = torch.tensor([2.4, 12 * math.pi / 180])
LONGEST = 200


class Poles:
    """Several carts with a pole, each of which starts again when its pole has fallen or the time is over."""

    def __init__(self, count: int, draw: torch.Generator) -> None:
        self.draw, self.state, self.age = draw, torch.zeros(count, 4), torch.zeros(count)
        self.begin(torch.ones(count, dtype=torch.bool))

    def begin(self, which: Tensor) -> None:
        fresh = torch.rand(self.state.shape, generator=self.draw) * 0.1 - 0.05
        self.state = torch.where(which[:, None], fresh, self.state)
        self.age = torch.where(which, 0.0, self.age)

    def move(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """Push to the left or to the right; what that gave, and whose pole is down."""
        place, speed, angle, turn = self.state.unbind(1)
        force = 20.0 * action - 10.0
        sine, cosine = angle.sin(), angle.cos()
        part = (force + 0.05 * turn**2 * sine) / 1.1
        spin = (9.8 * sine - cosine * part) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        push = part - 0.05 * spin * cosine / 1.1
        moved = [place + 0.02 * speed, speed + 0.02 * push, angle + 0.02 * turn, turn + 0.02 * spin]
        self.state, self.age = torch.stack(moved, dim=1), self.age + 1
        done = (self.state[:, [0, 2]].abs() > LIMITS).any(dim=1) | (self.age >= LONGEST)
        return torch.ones(len(action)), done


class Actor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
        self.value = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        with torch.no_grad():
            self.policy[4].weight.mul_(0.1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.policy(x), self.value(x).squeeze(-1)


@torch.no_grad()
def collected(poles: Poles, model: Actor, config: Config, tally: dict[str, Any]) -> dict[str, Tensor]:
    """What the policy did for some time, with advantages and returns."""
    bug, steps = config["bug"], config["horizon"]
    kept: dict[str, list[Tensor]] = {name: [] for name in ("x", "action", "log_chance", "reward", "done", "value")}
    for _ in range(steps):
        x = poles.state
        scores, value = model(x)
        action = Categorical(logits=scores).sample()
        reward, done = poles.move(action.float())
        for number in torch.nonzero(done).flatten().tolist():
            tally["ended"].append(float(poles.age[number]))
        poles.begin(done)
        if bug == "reward-negated":
            reward = -reward
        log_chance = Categorical(logits=scores).log_prob(action)
        row = {"x": x, "action": action, "log_chance": log_chance, "value": value}
        row |= {"reward": reward * config["reward_scale"], "done": done.float()}
        for name, each in row.items():
            kept[name].append(each)
    played = {name: torch.stack(rows) for name, rows in kept.items()}
    last = model(poles.state)[1]
    gain, carried = torch.zeros_like(played["reward"]), torch.zeros(len(last))
    for step in reversed(range(steps)):
        going = torch.ones_like(last) if bug == "done-ignored" else 1 - played["done"][step]
        follows = last if step == steps - 1 else played["value"][step + 1]
        delta = played["reward"][step] + config["gamma"] * follows * going - played["value"][step]
        carried = delta + config["gamma"] * config["lam"] * going * carried
        gain[step] = carried
    played |= {"gain": gain, "return": gain + played["value"]}
    return {name: rows.flatten(0, 1) for name, rows in played.items()}


def make_loss(config: Config) -> Any:
    bug = config["bug"]

    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, float]]:
        scores, value = model(batch["x"])
        chances = Categorical(logits=scores)
        log_chance = chances.log_prob(batch["action"])
        before = log_chance.detach() if bug == "ratio-without-old-chances" else batch["log_chance"]
        gain = batch["gain"]
        if config["normalise"]:
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        if bug == "advantage-negated":
            gain = -gain
        ratio = (log_chance - before).exp()
        held = ratio.clamp(1 - config["clip_range"], 1 + config["clip_range"])
        policy = -torch.minimum(ratio * gain, held * gain).mean()
        entropy = chances.entropy().mean()
        value_loss = mse_loss(value, batch["return"])
        softness = -config["entropy_coef"] if bug == "entropy-sign" else config["entropy_coef"]
        weight = 0.0 if bug == "value-not-trained" else config["value_coef"]
        numbers = {
            "policy_loss": float(policy.detach()),
            "value_loss": float(value_loss.detach()),
            "entropy": float(entropy.detach()),
            "approx_kl": float(((ratio - 1) - (log_chance - before)).mean().detach()),
            "clip_fraction": float(((ratio - 1).abs() > config["clip_range"]).float().mean()),
        }
        return policy + weight * value_loss - softness * entropy, numbers

    return loss_fn


@torch.no_grad()
def scored(model: Actor, seed: int) -> float:
    """How long the likeliest actions keep the pole up, on average."""
    poles = Poles(32, torch.Generator().manual_seed(90000 + seed))
    up, lasted = torch.ones(32, dtype=torch.bool), torch.zeros(32)
    for _ in range(LONGEST):
        _, done = poles.move(model(poles.state)[0].argmax(dim=1).float())
        lasted += up
        up &= ~done
    return float(lasted.mean())


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 60, "lr_max": 2e-3, "schedule": "constant", "clip": 0.5, "gamma": 0.99, "lam": 0.95}
    own |= {"horizon": 64, "poles": 8, "epochs": 4, "parts": 4, "clip_range": 0.2, "entropy_coef": 0.01}
    own |= {"value_coef": 0.5, "normalise": True, "reward_scale": 1.0}
    chosen: dict[str, Config] = {"gamma-0": {"gamma": 0.0}, "entropy-coef-5": {"entropy_coef": 5.0}}
    config = declared("ppo", bug, seed, changes, **own) | chosen.get(bug or "", {})
    config["rollouts"] = config["total_steps"]
    return config | {"total_steps": config["rollouts"] * config["epochs"] * config["parts"]}


def train(
    folder: Path, bug: str | None = None, seed: int = 1, *, record: Record = steadyrun.record, **changes: Any
) -> Log:
    config, log, step = configure(bug, seed, **changes), Log(log_file(folder)), 0
    torch.manual_seed(seed)
    model = Actor()
    frozen = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr_max"], eps=1e-5)
    loss_fn, tally = make_loss(config), {"ended": []}
    poles = Poles(config["poles"], torch.Generator().manual_seed(seed))
    draw = torch.Generator().manual_seed(seed)
    with record(folder, config=config) as run:
        run.watch(model, optimizer)
        for _rollout in range(config["rollouts"]):
            acting = frozen if bug == "acts-by-a-copy" else model
            played = collected(poles, acting, config, tally)
            lasted = tally["ended"][-20:]
            spread = played["return"].var()
            explained = 1 - float((played["return"] - played["value"]).var() / (spread + 1e-8))
            outer = {"explained_variance": explained, "ep_return": sum(lasted) / max(1, len(lasted))}
            outer |= {"advantage_mean": float(played["gain"].mean()), "advantage_std": float(played["gain"].std())}
            for _ in range(config["epochs"]):
                order = torch.randperm(len(played["x"]), generator=draw)
                for rows in order.chunk(config["parts"]):
                    loss, numbers = loss_fn(model, {name: each[rows] for name, each in played.items()})
                    optimizer.zero_grad()
                    loss.backward()
                    norm = nn.utils.clip_grad_norm_(model.parameters(), config["clip"])
                    optimizer.step()
                    log.step(step, loss, config["lr_max"], norm)
                    log.rows[-1] |= numbers | outer
                    run.step(loss)
                    run.log(**(numbers | outer if step % 16 == 15 else numbers))
                    step += 1
    log.rows[-1]["quality"] = scored(model, seed)
    log.write()
    return log
