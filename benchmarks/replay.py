"""How often the experiments of `steadyrun replay` name the right cause: real runs with a known cause, several seeds.

Trains every case, replays its gravest incident, lets the experiments decide, and writes `replay.md`. Misses stay in it.

    python benchmarks/replay.py                          about half an hour on two cores
    python benchmarks/replay.py --only lr-jump --seeds 1
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from incident_programs import Loop, cnn_task, image_loss, images, rnn_task, sentences
from torch import Tensor, nn

import steadyrun
from steadyrun.tutor.faults import FAULTS, load_recipe
from steadyrun.tutor.train import train_recorded

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    """A program with a known cause. `train` leaves a run; `factory` builds the program again."""

    name: str
    program: str
    expected: str
    train: Callable[[Path, int], Any]
    factory: Any = None


def tutor(fault: str) -> Callable[[Path, int], Any]:
    return lambda path, seed: train_recorded(load_recipe(fault, steps=FAULTS[fault].steps, seed=seed), path)


def flipped_tutor(path: Path, seed: int) -> None:
    """A bit of one weight flips in the middle of a healthy run."""
    recipe = load_recipe(steps=300, seed=seed)
    held: dict[str, nn.Module] = {}

    def build_model(config: Any) -> nn.Module:
        held["model"] = load_recipe().build_model(config)
        return held["model"]

    def flip(step: int, *_: object) -> None:
        if step == 220:
            _flip(next(p for name, p in held["model"].named_parameters() if "feed_forward" in name and p.ndim == 2))

    train_recorded(replace(recipe, build_model=build_model), path, flip)


def _flip(parameter: Tensor) -> None:
    with torch.no_grad():
        parameter.view(torch.int32).view(-1)[7] ^= 1 << 30


def rnn_loop(seed: int, **changes: Any) -> Loop:
    return Loop(rnn_task(), sentences(seed), **changes)


def strange_batch(path: Path, seed: int) -> None:
    """Sequences that count backwards, in one batch."""

    def spoil(step: int, part: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: held.flip(1) for name, held in part.items()} if step == 230 else part

    rnn_loop(seed, spoil=spoil, clip=1.0).run(path, 300)


def rate_jump(path: Path, seed: int) -> None:
    """A rate of 30 for one step: a typing error in a restart."""
    loop = rnn_loop(seed, clip=1.0)
    _every_step(loop, lambda step: loop.task.optimizer.param_groups[0].update(lr=30.0 if step == 230 else 3e-3))
    loop.run(path, 300)


def flipped_rnn(path: Path, seed: int) -> None:
    loop = rnn_loop(seed, clip=1.0)
    _every_step(loop, lambda step: _flip(loop.task.model.out.bias) if step == 230 else None)
    loop.run(path, 300)


def _every_step(loop: Loop, action: Callable[[int], object]) -> None:
    original = loop.one

    def one(run: steadyrun.Run, step: int) -> None:
        action(step)
        original(run, step)

    loop.one = one  # type: ignore[method-assign]


GENERATOR = np.random.default_rng()  # nobody seeds it


def noisy_loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """What the loader would do, with a generator that is not seeded: the batch is not what the model sees."""
    noise = torch.from_numpy(GENERATOR.standard_normal(batch[0].shape)).float()
    return image_loss(model, [batch[0] + noise, batch[1]])


def noisy_task() -> steadyrun.Task:
    task = cnn_task()
    task.loss_fn = noisy_loss
    return task


def unseeded_loader(path: Path, seed: int) -> None:
    loop = Loop(noisy_task(), images(seed))

    def spoil(step: int, part: list[Tensor]) -> list[Tensor]:
        return [part[0] * float("inf") if step == 150 else part[0], part[1]]

    loop.spoil = spoil
    loop.run(path, 200)


CASES = (
    Case("rare-token-spike", "tutor", "data", tutor("rare-token-spike")),
    Case("corrupt-batch", "tutor", "data", tutor("corrupt-batch")),
    Case("lr-jump", "tutor", "learning-rate", tutor("lr-jump")),
    Case("optimizer-reset", "tutor", "optimizer-state", tutor("optimizer-reset")),
    Case("fp16-overflow-constant-scale", "tutor", "precision", tutor("fp16-overflow-constant-scale")),
    Case("log-of-zero", "tutor", "model", tutor("log-of-zero")),
    Case("infinite-embedding-gradient", "tutor", "model", tutor("infinite-embedding-gradient")),
    Case("flipped bit", "tutor", "not-reproducible", flipped_tutor),
    Case("strange batch", "LSTM", "data", strange_batch, rnn_task),
    Case("rate of 30", "LSTM", "learning-rate", rate_jump, rnn_task),
    Case("flipped bit", "LSTM", "not-reproducible", flipped_rnn, rnn_task),
    Case("unseeded loader", "CNN", "not-reproducible", unseeded_loader, noisy_task),
)


def measure(case: Case, seed: int, folder: Path) -> dict[str, Any]:
    path = folder / f"{case.program}-{case.name.replace(' ', '-')}-{seed}"
    began = time.perf_counter()
    case.train(path, seed)
    trained = time.perf_counter()
    result = steadyrun.replay(path, case.factory)
    why = result.explain()
    culprit = result.culprit
    return {
        "case": case.name,
        "program": case.program,
        "seed": seed,
        "expected": case.expected,
        "verdict": why.verdict,
        "step": result.incident.step,
        "proof": result.proof.verdict,
        "culprit": "" if culprit is None else f"{culprit.operation} in {culprit.module or 'the loss function'}",
        "violent": "" if result.violent is None else f"step {result.violent.step}, {result.violent.parameter}",
        "experiments": len(why.table),
        "why": why.why,
        "trained_s": round(trained - began, 1),
        "replayed_s": round(time.perf_counter() - trained, 1),
    }


def page(rows: list[dict[str, Any]]) -> str:
    right = sum(row["verdict"] == row["expected"] for row in rows)
    lines = [
        "# The cause by experiment: how often it is right",
        "",
        "Written by `benchmarks/replay.py`. Each row is a real run with a known cause, replayed; the verdict is that",
        "of the experiments. These cases were looked at while the experiments were built.",
        "",
        f"Right: {right} of {len(rows)}.",
        "",
        "| case | program | seed | expected | verdict | step | proof | experiments | culprit | train, replay |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        verdict = row["verdict"] if row["verdict"] == row["expected"] else f"**{row['verdict']}**"
        lines.append(
            f"| {row['case']} | {row['program']} | {row['seed']} | {row['expected']} | {verdict} | {row['step']} | "
            f"{row['proof']} | {row['experiments']} | {row['culprit']} | {row['trained_s']} s, {row['replayed_s']} s |"
        )
    misses = [row for row in rows if row["verdict"] != row["expected"]]
    if misses:
        lines += ["", "## Misses", ""]
        lines += [f"- {row['case']} ({row['program']}, seed {row['seed']}): {row['why']}" for row in misses]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", help="a part of a case's name; the page is not written then")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    with tempfile.TemporaryDirectory() as place:
        for case in CASES:
            if options.only and options.only not in case.name:
                continue
            for seed in range(1, options.seeds + 1):
                found.append(measure(case, seed, Path(place)))
                row = found[-1]
                mark = "ok " if row["verdict"] == row["expected"] else "NO "
                print(mark, case.program, case.name, seed, row["verdict"], row["why"], sep=" | ", flush=True)
                if not options.only:  # written again and again: what was measured is not lost
                    (HERE / "replay.md").write_text(page(found), "utf-8")
