"""What forwarding costs a training step, and what a tracker that blocks costs it.

Copies of one small recorded loop take turns: one trains for a while, the others rest and their threads have nothing to
do. Turns of seconds, not of steps: a thread that follows one copy would otherwise slow all of them alike. The
second copy without forwarding is the control. Wall time per step is what the loop notices, where nothing else runs on
the machine; "loop" is the CPU time of the training thread alone, "all" that of the process with the thread that
follows. Medians of the rounds, against the first copy. Trackers that are not installed are left out.

    python benchmarks/forwarding.py --rounds 6 --seconds 3
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

import steadyrun


class Blocking:
    """A tracker that never comes back from its first call."""

    def scalars(self, step: int, values: Mapping[str, float]) -> None:  # noqa: ARG002
        threading.Event().wait()

    def finding(self, event: object) -> None:
        pass


class Copy:
    """A small loop, recorded and watched: about the smallest step that anyone trains."""

    def __init__(self, folder: Path, forward: Any) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        asked = None if forward is None else steadyrun.Forward(forward, wait=1.0)
        self.run = steadyrun.record(folder, forward=asked)
        self.run.watch(self.model, self.optimizer, monitor=False)
        self.took: list[tuple[float, ...]] = []  # of a step: wall, the loop's CPU, all CPU; a turn each
        self.steps = 0

    def step(self) -> None:
        batch = torch.randn(64, 64), torch.randint(0, 10, (64,))
        loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.run.step(loss, batch=batch)

    def turn(self, seconds: float) -> None:
        """Train for so long, and keep what a step took."""
        steps, began = 0, _clocks()
        while time.perf_counter() - began[0] < seconds:
            self.step()
            steps += 1
        self.took.append(tuple((now - then) / steps for now, then in zip(_clocks(), began, strict=True)))
        self.steps += steps


def _clocks() -> tuple[float, float, float]:
    return time.perf_counter(), time.thread_time(), time.process_time()


def measure(rounds: int, seconds: float) -> dict[str, Copy]:
    os.environ.setdefault("WANDB_MODE", "offline")
    os.environ.setdefault("WANDB_SILENT", "true")
    found = {name: name for name in ("tensorboard", "wandb") if importlib.util.find_spec(name)}
    ways: dict[str, Any] = {"none": None, "none again": None, **found, "one that blocks": Blocking()}
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("WANDB_DIR", folder)
        copies = {name: Copy(Path(folder) / name, way) for name, way in ways.items()}
        names = list(copies)
        for number in range(rounds + 1):
            for name in names[number % len(names) :] + names[: number % len(names)]:
                copies[name].turn(seconds)
                time.sleep(1.0)  # its thread gets time to catch up
            if number == 0:  # the first round warms up
                for copy in copies.values():
                    copy.took.clear()
        for copy in copies.values():
            copy.run.close()
    return copies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=3.0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    copies = measure(arguments.rounds, arguments.seconds)
    print("| forwarding to | ms a step | wall | loop | all | steps |\n|---|---|---|---|---|---|")
    for name, copy in copies.items():
        ratios = [
            [a / b for a, b in zip(*turn, strict=True)] for turn in zip(copy.took, copies["none"].took, strict=True)
        ]
        wall, loop, everything = (statistics.median(column) for column in zip(*ratios, strict=True))
        step = 1e3 * statistics.median(wall for wall, *_ in copy.took)
        print(f"| {name} | {step:.3f} | {wall:.3f} | {loop:.3f} | {everything:.3f} | {copy.steps} |")


if __name__ == "__main__":
    main()
