"""The tutor in several processes: each rank trains on its part of the sentences, and DDP averages the gradients.

Start it with torch's launcher, as `steadyrun demo --ranks 2` does:

    python -m torch.distributed.run --nproc-per-node 2 -m steadyrun.tutor.ranks FAULT RUN_DIRECTORY
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from steadyrun.tutor.config import TutorConfig, declared
from steadyrun.tutor.data import Batch, Data
from steadyrun.tutor.recipe import Recipe
from steadyrun.tutor.train import Step, class_losses, start, train_step, validate

if TYPE_CHECKING:
    from steadyrun import Run

PATIENCE = timedelta(seconds=20)
"""How long a rank waits for the others before it fails; gloo's default is half an hour."""
_BETWEEN_REPORTS = 0.1  # seconds

Loader = DataLoader[int]


class Rows(Dataset[int]):
    """The numbers of the sentences that a loader draws from; `Data.train_batch` makes a batch of them."""

    def __init__(self, rows: Sequence[int]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> int:
        return self._rows[index]


def build_loader(data: Data, config: TutorConfig) -> Loader:
    """Batches of this rank's part of the sentences, which the sampler draws anew in every epoch."""
    rows = Rows(range(len(data.train)))
    sampler: DistributedSampler[int] = DistributedSampler(rows, seed=config.seed, drop_last=True)
    return DataLoader(rows, config.batch_size, sampler=sampler, drop_last=True, collate_fn=data.train_batch)


def shuffled(rows: Sequence[int], seed: int, data: Data, config: TutorConfig) -> Loader:
    """Batches of `rows` in an order that depends on the seed alone, without a distributed sampler."""
    order = torch.Generator().manual_seed(seed)
    return DataLoader(
        Rows(rows), config.batch_size, shuffle=True, generator=order, drop_last=True, collate_fn=data.train_batch
    )


@dataclass(frozen=True)
class RankRecipe(Recipe):
    """A training program of several processes; the defaults are healthy."""

    build_loader: Callable[[Data, TutorConfig], Loader] = build_loader


@dataclass(frozen=True)
class RankFault:
    """An engineered mistake of a program of several processes; `leaf` is the question that finds it."""

    name: str
    leaf: str
    summary: str
    change: str
    inject: Callable[[RankRecipe], RankRecipe] = field(repr=False)


def train_rank(recipe: RankRecipe, path: Path, on_step: Callable[[int, Step], None]) -> None:
    """Train this process's replica and record it; every rank records into the same run directory."""
    import steadyrun

    config, data = recipe.config, recipe.load_data(recipe.config)
    torch.manual_seed(config.seed)
    state = start(recipe)
    state.model = DistributedDataParallel(state.model)
    intent = declared(config, data.baseline_loss()) | {"program": recipe.name}
    with steadyrun.record(path, config=intent) as run:
        run.watch(
            state.model,
            state.optimizer,
            scheduler=state.scheduler,
            loss_fn=recipe.loss,
            tokenizer=data.tokenizer,
            factory="steadyrun.tutor.replaying:rank_task",
        )
        loader = recipe.build_loader(data, config)
        for state.step, batch in enumerate(batches(loader, data, config)):
            done = train_step(recipe, state, [batch])
            run.step(done.loss, batch=batch, class_losses=class_losses(done.by_token, [batch]))
            on_step(state.step, done)
            if (state.step + 1) % config.val_every == 0 or state.step + 1 == config.steps:
                _validate(run, recipe, state.model, data)


def batches(loader: Loader, data: Data, config: TutorConfig) -> Iterator[Batch]:
    """The batches of all epochs, up to `config.steps`; a rank with a shorter loader gets fewer."""
    a_pass = len(data.train) // dist.get_world_size() // config.batch_size
    step = 0
    for epoch in range(math.ceil(config.steps / a_pass)):
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(epoch)
        for batch in loader:
            if step == config.steps:
                return
            yield batch
            step += 1


def _validate(run: Run, recipe: Recipe, model: nn.Module, data: Data) -> None:
    """Every rank validates its replica on all held-out sentences."""
    loss, by_class = validate(recipe, model, data)
    run.val(loss, batches=[data.val_batch()], class_losses=by_class)


# One process of the job, as the launcher starts it.


def main(arguments: Sequence[str]) -> None:
    """Join the job, train, and leave it together with the other ranks."""
    from steadyrun.tutor.faults.ranks import load_rank_recipe

    parser = argparse.ArgumentParser(prog="steadyrun.tutor.ranks", description=__doc__.splitlines()[0])
    parser.add_argument("fault")
    parser.add_argument("path", type=Path)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seed", type=int, default=42)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=PATIENCE)
    recipe = load_rank_recipe(given.fault, steps=given.steps, seed=given.seed)
    train_rank(recipe, given.path, _reporter(recipe.config.steps) if dist.get_rank() == 0 else _silent)
    _leave()


def _leave() -> None:
    """End together: gloo aborts if another rank closes its connections first."""
    store = dist.distributed_c10d._get_default_store()
    store.set(f"done {dist.get_rank()}", "")
    store.wait([f"done {rank}" for rank in range(dist.get_world_size())], 3 * PATIENCE)
    dist.destroy_process_group()


def _reporter(steps: int) -> Callable[[int, Step], None]:
    """Rank 0 prints its progress as JSON lines for the process that started the job, ten times a second."""
    due = 0.0

    def report(step: int, done: Step) -> None:
        nonlocal due
        if time.monotonic() >= due or step + 1 == steps:
            due = time.monotonic() + _BETWEEN_REPORTS
            line = {"step": step, "loss": float(done.loss), "lr": done.lr, "norm": float(done.grad_norm)}
            print(json.dumps(line), flush=True)

    return report


def _silent(_step: int, _done: Step) -> None:
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
