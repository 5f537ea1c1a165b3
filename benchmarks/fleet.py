"""The healthy fleet: training programs with nothing wrong in them, recorded so that thresholds can be measured on them.

Tutors of many seeds and shapes, ordinary programs in the style of their users, and runs that look alarming and
are fine. What is declared is what happens. About twelve minutes on one core; finished runs are kept.

    python benchmarks/fleet.py OUT
    python benchmarks/fleet.py OUT --only 'tutor-*'
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

import steadyrun
from steadyrun.tutor.config import TutorConfig, declared
from steadyrun.tutor.data import Data, batch_order
from steadyrun.tutor.faults import load_recipe
from steadyrun.tutor.train import OnStep, train, train_recorded

Program = Callable[[Path], None]

PROGRAMS = Path(__file__).parent / "programs"

# Changes of the tutor, at seed 1 and 600 steps unless they say otherwise.
TUTORS: dict[str, dict[str, Any]] = {
    "layers-1": {"layers": 1},
    "layers-4": {"layers": 4},
    "layers-6": {"layers": 6},
    "width-64": {"width": 64},
    "width-256": {"width": 256},
    "batch-2": {"batch_size": 2},
    "batch-64": {"batch_size": 64},
    "clip-off": {"clip": None},
    "clip-0.1": {"clip": 0.1},
    "constant": {"schedule": "constant"},
    "bf16": {"dtype": "bf16", "steps": 300},
    "accumulation-4": {"accumulation": 4},
    "dropout-0.2": {"dropout": 0.2},
    "100-steps": {"steps": 100},
    "150-steps": {"steps": 150},
    # At the usual rate it would have learnt the sentences by heart long before the end.
    "10000-steps": {"steps": 10_000, "layers": 1, "width": 64, "batch_size": 4, "lr_max": 1e-4, "lr_min": 1e-5},
    "fp16": {"dtype": "fp16", "steps": 120},
    "long-warmup": {"warmup_steps": 300},
}

# Name of the run: file in programs/, seed.
OTHERS: dict[str, tuple[str, int]] = {
    "images-1": ("images", 1),
    "images-2": ("images", 2),
    "tabular-1": ("tabular", 1),
    "tabular-2": ("tabular", 2),
    "char-lstm-1": ("char_lstm", 1),
    "char-lstm-2": ("char_lstm", 2),
    "warm-restarts": ("warm_restarts", 1),
    "fine-tuning": ("fine_tuning", 1),
    "sum-reduction": ("sum_reduction", 1),
    "lora": ("lora", 1),
    "gan": ("gan", 1),
    "vae": ("vae", 1),
    "autoencoder": ("autoencoder", 1),
    "large-inputs": ("large_inputs", 1),
    "memorise": ("memorise", 1),
}


def programs() -> dict[str, Program]:
    """Every program of the fleet by its name; each trains and records one run directory."""
    fleet: dict[str, Program] = {f"tutor-seed-{seed}": partial(_tutor, seed=seed) for seed in range(1, 11)}
    for name, changes in TUTORS.items():
        fleet[f"tutor-{name}"] = partial(_tutor, **{"seed": 1, "steps": 600, **changes})
    fleet["tutor-sgd"] = _tutor_with_sgd
    fleet["tutor-resumed"] = _tutor_resumed
    fleet["tutor-every-tenth"] = partial(_tutor_by_hand, log=_every_tenth)
    fleet["tutor-means-of-ten"] = partial(_tutor_by_hand, log=_means_of_ten)
    fleet["tutor-hard-batch"] = _tutor_with_a_hard_batch
    for name, (module, seed) in OTHERS.items():
        fleet[name] = partial(_other, module=module, seed=seed)
    return fleet


def _tutor(out: Path, **settings: Any) -> None:
    train_recorded(load_recipe(**settings), out)


def _tutor_with_sgd(out: Path) -> None:
    recipe = load_recipe(seed=1, steps=600, lr_max=0.05, lr_min=0.005, weight_decay=1e-4)
    train_recorded(replace(recipe, build_optimizer=_sgd), out)


def _tutor_resumed(out: Path) -> None:
    recipe = load_recipe(seed=1, steps=600)
    train_recorded(replace(recipe, resume_at=250), out)


def _sgd(model: nn.Module, config: TutorConfig) -> Optimizer:
    decay = [p for p in model.parameters() if p.ndim >= 2]
    no_decay = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": decay, "weight_decay": config.weight_decay}, {"params": no_decay, "weight_decay": 0.0}]
    return SGD(groups, lr=config.lr_max, momentum=0.9)


def _tutor_by_hand(out: Path, log: Callable[[steadyrun.Run], OnStep]) -> None:
    """A loop that watches nothing and logs a few numbers itself, ten times more seldom than it steps."""
    recipe = load_recipe(seed=1, steps=600)
    config = recipe.config
    with steadyrun.record(out, config=declared(config, recipe.load_data(config).baseline_loss())) as run:
        result = train(recipe, on_step=log(run))
        for step, loss in zip(result.val_steps, result.val_losses, strict=True):
            run.log(step=step, val_loss=loss)


def _every_tenth(run: steadyrun.Run) -> OnStep:
    def on_step(step: int, loss: Tensor, lr: float, grad_norm: Tensor) -> None:
        if step % 10 == 0:
            run.log(step=step, loss=loss, lr=lr, grad_norm=grad_norm)

    return on_step


def _means_of_ten(run: steadyrun.Run) -> OnStep:
    losses: list[Tensor] = []

    def on_step(step: int, loss: Tensor, lr: float, grad_norm: Tensor) -> None:
        losses.append(loss)
        if len(losses) == 10:
            run.log(step=step, loss=torch.stack(losses).mean(), lr=lr, grad_norm=grad_norm)
            losses.clear()

    return on_step


def _tutor_with_a_hard_batch(out: Path) -> None:
    train_recorded(replace(load_recipe(seed=1, steps=600), batch_order=_hardest_last), out)


def _hardest_last(data: Data, config: TutorConfig) -> Iterator[list[int]]:
    """Sentences with the rarest tokens first come after three quarters of the run, in one batch, then with the rest."""
    counts = Counter(token for row in data.train for token in row)
    by_rarity = sorted(range(len(data.train)), key=lambda i: min(counts[token] for token in data.train[i]))
    hard, easy = by_rarity[: config.batch_size], by_rarity[config.batch_size :]
    late = 3 * config.steps // 4
    first = replace(data, train=[data.train[i] for i in easy], train_sentences=[data.train_sentences[i] for i in easy])
    yield from ([easy[i] for i in batch] for batch in islice(batch_order(first, config), late))
    yield hard
    yield from batch_order(data, config)


def _other(out: Path, module: str, seed: int) -> None:
    # Each is a script of its own, and finds its neighbours as a script does.
    if str(PROGRAMS) not in sys.path:
        sys.path.insert(0, str(PROGRAMS))
    importlib.import_module(module).train(out, seed)


def finished(run: Path) -> bool:
    try:
        return json.loads((run / "manifest.json").read_bytes())["state"] == "finished"
    except (OSError, ValueError, KeyError):
        return False


def _describe(run: Path) -> str:
    view = steadyrun.open_run(run)
    loss = view.series("loss").values
    words = f"{len(loss)} steps, loss {loss[0]:.4g} to {loss[-1]:.4g}"
    if "val_loss" in view.names():
        words += f", validation {view.series('val_loss').values[-1]:.4g}"
    return words


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="where the run directories go")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="the runs to train, such as 'tutor-*'")
    arguments = parser.parse_args()
    chosen = {name: train for name, train in programs().items() if fnmatch.fnmatchcase(name, arguments.only)}
    if not chosen:
        parser.error(f"no run is called {arguments.only!r}; there are {', '.join(programs())}")
    torch.set_num_threads(1)  # models this small lose more to a second thread than they gain
    for number, (name, program) in enumerate(chosen.items(), start=1):
        run = arguments.out / name
        began = time.perf_counter()
        print(f"[{number}/{len(chosen)}] {name}: ", end="", flush=True)
        if finished(run):
            print(f"kept, {_describe(run)}", flush=True)
            continue
        shutil.rmtree(run, ignore_errors=True)
        program(run)
        print(f"{_describe(run)}, {time.perf_counter() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
