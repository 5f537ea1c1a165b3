"""A program for two ranks: trains the cases named on the command line in one process group and records each.

python -m torch.distributed.run --nproc-per-node 2 recorded_program.py FOLDER CASE…
"""

import contextlib
import json
import sys
from collections.abc import Callable
from datetime import timedelta
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
    """Train a few steps; returns the losses, parameters and random state at the end, and the number of collectives."""
    before = collectives()
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
        with torch.no_grad():
            called.eval()(inputs)  # on all ranks: DDP broadcasts its buffers
        if run is not None:
            run.val(0.5)
    values = [getattr(each, "to_local", each.detach)().detach().flatten().tolist() for each in model.parameters()]
    state = {"losses": losses, "parameters": values, "random": torch.get_rng_state().tolist()}
    return state | {"collectives": collectives() - before}


def collectives() -> int:
    """How many collectives this process has started, in all groups."""
    groups = dist.distributed_c10d._world.pg_map
    return sum(group._get_sequence_number_for_group() for group in groups)


def ddp(folder: Path, recorded: bool = True) -> dict[str, Any]:
    return train(folder, DistributedDataParallel(plain_model()), recorded=recorded)


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


def fsdp(folder: Path, recorded: bool = True) -> dict[str, Any]:
    torch.manual_seed(0)
    return train(folder, sharded(init_device_mesh("cpu", (2,))), clip=torch_clip, recorded=recorded)


def fsdp_local_clip(folder: Path) -> None:
    """Each rank clips by the norm of its own shards."""
    torch.manual_seed(0)
    train(folder, sharded(init_device_mesh("cpu", (2,))), clip=local_clip)


def tensor_parallel(folder: Path, recorded: bool = True) -> dict[str, Any]:
    torch.manual_seed(dist.get_rank())
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    parallelize_module(model, init_device_mesh("cpu", (2,), mesh_dim_names=("tp",)), plan)
    return train(folder, model, same_data=True, recorded=recorded)


def apart(folder: Path) -> None:
    """Train each structure three times: recorded by nobody, by all, and by the first rank alone."""
    for structure in (ddp, fsdp, tensor_parallel):
        for name, recorded in (("none", False), ("all", True), ("first", dist.get_rank() == 0)):
            state = structure(folder / f"{structure.__name__}-{name}", recorded=recorded)
            (folder / f"{structure.__name__}-{name}-{dist.get_rank()}.json").write_text(json.dumps(state))


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
    "apart": apart,
}


def main() -> None:
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    for name in names:
        (folder / name).mkdir(parents=True, exist_ok=True)
        CASES[name](folder / name)
        dist.barrier()
    store = dist.distributed_c10d._get_default_store()
    store.set(f"done {dist.get_rank()}", "")  # gloo aborts if the other side closes while the barrier is being left
    store.wait(["done 0", "done 1"])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
