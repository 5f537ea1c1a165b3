"""What recording costs a training step, as a ratio measured in one process.

Three copies of one training program take turns, step by step: bare, recorded, bare again. Turning at every
step cancels drift (other work on the machine, clock changes); the second bare copy is the control: its ratio
to the first says how far the measurement can be trusted. Default cadence, all seven panels fed.

The live monitor goes by the clock, so it is off there and measured by itself: `--monitor` trains one copy and adds up
the time in which the monitor looks, and what it costs a step on which it does not.

    python benchmarks/overhead.py tutor --steps 2000
    python benchmarks/overhead.py gpt17m --steps 200
    python benchmarks/overhead.py tutor --steps 2000 --monitor
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

import steadyrun
from steadyrun.tutor.config import declared
from steadyrun.tutor.faults import load_recipe
from steadyrun.tutor.model import MiniGPT, ModelConfig, init_weights
from steadyrun.tutor.train import class_losses, start, train_step, watch


@dataclass
class Clock:
    """Process CPU time and wall time of one copy, per step."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    def time(self, action: Callable[[], None]) -> None:
        cpu, wall = time.process_time(), time.perf_counter()
        action()
        self.cpu.append(time.process_time() - cpu)
        self.wall.append(time.perf_counter() - wall)


class Tutor:
    """The grammar tutor with its own settings."""

    def __init__(self, folder: Path | None) -> None:
        recipe = load_recipe(steps=2000)
        torch.manual_seed(recipe.config.seed)
        self.recipe = recipe
        self.data = recipe.load_data(recipe.config)
        self.order = recipe.batch_order(self.data, recipe.config)
        self.state = start(recipe)
        self.run = None
        if folder is not None:
            self.run = steadyrun.record(folder, config=declared(recipe.config, self.data.baseline_loss()))
            watch(self.run, recipe, self.state, self.data)

    def step(self) -> None:
        batch = self.data.train_batch(next(self.order))
        done = train_step(self.recipe, self.state, [batch])
        if self.run is not None:
            self.run.step(done.loss, batch=batch, class_losses=class_losses(done.by_token, [batch]))


class Gpt17m:
    """A 6-layer, 384-wide GPT with about 17M parameters on random tokens, batch 8 x 128."""

    def __init__(self, folder: Path | None) -> None:
        torch.manual_seed(0)
        self.model: nn.Module = MiniGPT(ModelConfig(8192, 128, 6, 384, 6))
        init_weights(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 10_000)
        self.run = None
        if folder is not None:
            self.run = steadyrun.record(folder, config={"clip": 1.0, "total_steps": 10_000})
            self.run.watch(self.model, self.optimizer, scheduler=self.scheduler, loss_fn=self.loss_fn)

    @staticmethod
    def token_losses(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
        logits = model(tokens[:, :-1])
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")

    @classmethod
    def loss_fn(cls, model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
        return cls.token_losses(model, tokens).mean()

    def step(self) -> None:
        tokens = torch.randint(0, 8192, (8, 129))
        by_token = self.token_losses(self.model, tokens)
        loss = by_token.mean()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()
        if self.run is not None:
            halves = by_token.detach().view(2, -1).mean(1)
            self.run.step(loss, batch=tokens, class_losses={"first": halves[0], "second": halves[1]})


WORKLOADS = {"tutor": Tutor, "gpt17m": Gpt17m}


def measure(name: str, steps: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        build = WORKLOADS[name]
        bare, recorded, control = build(None), build(Path(folder) / "run"), build(None)
        recorded.run._flusher.stop_monitor()
        clocks = {"bare": Clock(), "recorded": Clock(), "control": Clock()}
        copies = [("bare", bare), ("recorded", recorded), ("control", control)]
        for _ in range(5):
            for _, copy in copies:
                _one_step(copy)
        for step in range(steps):
            for place in range(3):
                label, copy = copies[(place + step) % 3]
                if copy is recorded:
                    _take_turn(copy)
                clocks[label].time(copy.step)
                if copy is recorded:
                    _leave_turn(copy)
        recorded.run.close()
        series = len(steadyrun.open_run(recorded.run.path).names())
    return _result(name, steps, series, clocks)


def measure_monitor(name: str, steps: int) -> dict[str, object]:
    """One recorded copy alone, with the monitor's looks timed."""
    looks, ordinary = Clock(), Clock()
    with tempfile.TemporaryDirectory() as folder:
        copy = WORKLOADS[name](Path(folder) / "run")
        monitor = copy.run._flusher._monitor
        look, due = monitor.look, monitor.due
        monitor.look = lambda step, turn: looks.time(lambda: look(step, turn))
        began = time.perf_counter()
        for _ in range(steps):
            copy.step()
        took = time.perf_counter() - began
        for turn in range(10_000):
            ordinary.time(lambda turn=turn: due(0.0, turn) or monitor.saw({"loss": 1.0}))
        closing = time.perf_counter()
        monitor.finish(steps)
        closing = time.perf_counter() - closing
        copy.run.close()
    return {
        "workload": name,
        "steps": steps,
        "step_ms": round(1e3 * took / steps, 2),
        "looks": len(looks.wall),
        "longest_look_ms": round(1e3 * max(looks.wall, default=0.0), 1),
        "share_of_the_time": round(sum(looks.wall) / took, 4),
        "ordinary_step_us": round(1e6 * statistics.median(ordinary.wall), 2),
        "last_look_ms": round(1e3 * closing, 1),
    }


def _one_step(copy: Tutor | Gpt17m) -> None:
    if copy.run is not None:
        _take_turn(copy)
    copy.step()
    if copy.run is not None:
        _leave_turn(copy)


def _take_turn(copy: Tutor | Gpt17m) -> None:
    """Global forward hooks live while a sampled step runs; they must not see the bare copies' steps."""
    copy.run._attachment.watcher.prepare(copy.run._steps.next)


def _leave_turn(copy: Tutor | Gpt17m) -> None:
    copy.run._attachment.watcher._forward.disarm()


def _result(name: str, steps: int, series: int, clocks: dict[str, Clock]) -> dict[str, object]:
    def ratio(one: str, other: str, kind: str) -> float:
        return round(sum(getattr(clocks[one], kind)) / sum(getattr(clocks[other], kind)), 4)

    return {
        "workload": name,
        "steps": steps,
        "threads": torch.get_num_threads(),
        "series": series,
        "step_ms": round(1e3 * statistics.mean(clocks["bare"].wall), 2),
        "recorded_over_bare": {"cpu": ratio("recorded", "bare", "cpu"), "wall": ratio("recorded", "bare", "wall")},
        "bare_over_bare": {"cpu": ratio("control", "bare", "cpu"), "wall": ratio("control", "bare", "wall")},
        "recorded_over_bare_median_step": round(
            statistics.median(clocks["recorded"].cpu) / statistics.median(clocks["bare"].cpu), 4
        ),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--monitor", action="store_true", help="measure the live monitor instead")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    chosen = measure_monitor if options.monitor else measure
    print(json.dumps(chosen(options.workload, options.steps)))
