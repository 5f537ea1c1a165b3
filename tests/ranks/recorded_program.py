"""A program for two ranks: trains the cases named on the command line in one process group and records each.

python -m torch.distributed.run --nproc-per-node 2 recorded_program.py FOLDER CASE…
"""

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
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
    clip: Callable[[nn.Module], None] | None = None,
    same_data: bool = False,
) -> dict[str, Any]:
    """Train a few steps; returns the losses, the parameters and the random state at the end."""
    called, watched, rank = called or model, watched or model, dist.get_rank()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(rank)
    losses = []
    with (
        steadyrun.record(folder, {"clip": 0.1} if clip else {}, every=2)
        if recorded
        else contextlib.nullcontext() as run
    ):
        if run is not None:
            run.watch(watched, optimizer, monitor=False)
        for step in range(STEPS):
            source = torch.Generator().manual_seed(10 * step + (0 if same_data else rank))
            inputs, targets = torch.randn(8, 8, generator=source), torch.randint(0, 4, (8,), generator=source)
            loss = nn.functional.cross_entropy(called(inputs), targets)
            loss.backward()
            if clip is not None:
                clip(model)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            if run is not None:
                run.step(loss, batch=(inputs, targets))
        if run is not None:
            with torch.no_grad():
                called.eval()(inputs)
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


def plain(folder: Path) -> None:
    """Nothing shows how the ranks belong together."""
    train(folder, plain_model())


def sharded(mesh: DeviceMesh) -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def fsdp(folder: Path) -> None:
    torch.manual_seed(0)
    train(folder, sharded(init_device_mesh("cpu", (2,))), clip=torch_clip)


def fsdp_local_clip(folder: Path) -> None:
    """Each rank clips by the norm of its own shards."""
    torch.manual_seed(0)
    train(folder, sharded(init_device_mesh("cpu", (2,))), clip=local_clip)


def tensor_parallel(folder: Path) -> None:
    torch.manual_seed(dist.get_rank())
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    parallelize_module(model, init_device_mesh("cpu", (2,), mesh_dim_names=("tp",)), plan)
    train(folder, model, same_data=True)


def torch_clip(model: nn.Module) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)


def local_clip(model: nn.Module) -> None:
    shards = [parameter.grad.to_local() for parameter in model.parameters()]
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(shard) for shard in shards]))
    for shard in shards:
        shard.mul_(0.1 / norm)


CASES = {
    "ddp": ddp,
    "inside-ddp": inside_ddp,
    "past-ddp": past_ddp,
    "plain": plain,
    "fsdp": fsdp,
    "fsdp-local-clip": fsdp_local_clip,
    "tensor-parallel": tensor_parallel,
}


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
