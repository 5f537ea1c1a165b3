"""A program for two ranks: trains the cases named on the command line in one process group and records each.

python -m torch.distributed.run --nproc-per-node 2 recorded_program.py FOLDER CASE…
"""

import contextlib
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import steadyrun

STEPS = 4


def plain_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))


def train(
    folder: Path,
    model: Any,
    *,
    called: Any = None,
    watched: Any = None,
    recorded: bool = True,
    clip: float | None = None,
) -> dict[str, Any]:
    """Train a few steps; returns the losses, the parameters and the random state at the end."""
    called, watched, rank = called or model, watched or model, dist.get_rank()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(rank)
    losses = []
    with steadyrun.record(folder, every=2) if recorded else contextlib.nullcontext() as run:
        if run is not None:
            run.watch(watched, optimizer, monitor=False)
        for step in range(STEPS):
            source = torch.Generator().manual_seed(10 * step + rank)
            inputs, targets = torch.randn(8, 8, generator=source), torch.randint(0, 4, (8,), generator=source)
            loss = nn.functional.cross_entropy(called(inputs), targets)
            loss.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            if run is not None:
                run.step(loss, batch=(inputs, targets))
        if run is not None:
            run.val(0.5)
    values = [getattr(each, "to_local", each.detach)().detach().flatten().tolist() for each in model.parameters()]
    return {"losses": losses, "parameters": values, "random": torch.get_rng_state().tolist()}


def ddp(folder: Path) -> None:
    train(folder, DistributedDataParallel(plain_model()))


def inside_ddp(folder: Path) -> None:
    """The module inside of the wrapper is watched; the wrapper is called."""
    model = plain_model()
    wrapper = DistributedDataParallel(model)
    train(folder, model, called=wrapper)


def past_ddp(folder: Path) -> None:
    model = DistributedDataParallel(plain_model())
    train(folder, model, called=model.module)


CASES = {"ddp": ddp, "inside-ddp": inside_ddp, "past-ddp": past_ddp}


def main() -> None:
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    dist.init_process_group("gloo")
    for name in names:
        CASES[name](folder / name)
        dist.barrier()
    store = dist.distributed_c10d._get_default_store()
    store.set(f"done {dist.get_rank()}", "")  # gloo aborts if the other side closes while the barrier is being left
    store.wait(["done 0", "done 1"])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
