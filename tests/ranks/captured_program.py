"""A program for several ranks whose incidents are captured: trains the cases named on the command line.

python -m torch.distributed.run --nproc-per-node 2 captured_program.py FOLDER CASE…
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import steadyrun

STEPS, AT = 130, 112  # a spike counts once 100 losses came before it; digests are of even steps
EXPONENT = 30  # the top bit of a float32's exponent


def plain_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))


def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch["x"]), batch["y"])


def task() -> steadyrun.Task:
    """What a replay builds: one process, no wrapper."""
    model = plain_model()
    return steadyrun.Task(model, torch.optim.AdamW(model.parameters(), lr=1e-2), loss_fn)


def batch_of(rank: int, step: int) -> dict[str, Tensor]:
    source = torch.Generator().manual_seed(10 * step + rank)
    return {"x": torch.randn(8, 8, generator=source), "y": torch.randint(0, 4, (8,), generator=source)}


def flip(tensor: Tensor) -> None:
    with torch.no_grad():
        tensor.view(-1).view(torch.int32)[3] ^= 1 << EXPONENT


def train(
    folder: Path,
    model: nn.Module,
    *,
    spoil: Callable[[dict[str, Tensor], int], None] | None = None,
    after_update: Callable[[nn.Module, int], None] | None = None,
    asked: bool = False,
    joined: bool = False,
) -> None:
    rank = dist.get_rank()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(100 + rank)
    with steadyrun.record(folder, every=2) as run:
        run.watch(model, optimizer, loss_fn=loss_fn, monitor=False, capture={"every": 25})
        for step in range(STEPS):
            batch = batch_of(rank, step)
            if spoil is not None and rank == 1:
                spoil(batch, step)
            loss = loss_fn(model, batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if after_update is not None and rank == 1 and step == AT:
                after_update(model, step)
            run.step(loss, batch=batch)
            if asked and rank == 1 and step == AT:
                run.incident("look again")
        if joined:
            wait_for_incident(folder / "incidents")


def wait_for_incident(folder: Path) -> None:
    """Until the thread of rank 1 has written its part: rank 0 finds it when it closes its run, at the latest."""
    while not list(folder.glob("step-*/rank-00001/incident.json")):
        time.sleep(0.01)


def one_rank_nan(folder: Path) -> None:
    """One value of rank 1's batch is NaN: the average carries it to rank 0, whose next loss is NaN."""

    def spoil(batch: dict[str, Tensor], step: int) -> None:
        if step == AT:
            batch["x"][5, 2] = torch.nan

    train(folder, DistributedDataParallel(plain_model()), spoil=spoil)


def weight_flip(folder: Path) -> None:
    """One bit of rank 1's last layer flips after an update."""
    model = DistributedDataParallel(plain_model())
    train(folder, model, after_update=lambda net, _: flip(net.module[4].weight.data), joined=True)


def healthy(folder: Path) -> None:
    train(folder, DistributedDataParallel(plain_model()), asked=True, joined=True)


def sharded(folder: Path) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    train(folder, model)


CASES = {"one-rank-nan": one_rank_nan, "weight-flip": weight_flip, "healthy": healthy, "sharded": sharded}


def main() -> None:
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    dist.init_process_group("gloo")
    for name in names:
        CASES[name](folder / name)
        dist.barrier()
    store = dist.distributed_c10d._get_default_store()
    store.set(f"done {dist.get_rank()}", "")  # gloo aborts if the other side closes while the barrier is being left
    store.wait([f"done {rank}" for rank in range(dist.get_world_size())])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
