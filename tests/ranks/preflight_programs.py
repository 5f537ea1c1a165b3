"""Programs for preflight on two ranks: healthy ones, and ones with one mistake each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import steadyrun

EXAMPLES, WIDTH, CLASSES = 96, 8, 5


class Net(nn.Module):
    def __init__(self, *more: nn.Module) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 32), nn.Linear(32, CLASSES)
        self.more = nn.Sequential(*more)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.down(self.more(torch.relu(self.up(inputs))))
        return scores


def dataset() -> TensorDataset:
    drawn = torch.Generator().manual_seed(3)
    inputs = torch.randn(EXAMPLES, WIDTH, generator=drawn)
    return TensorDataset(inputs, torch.randint(0, CLASSES, (EXAMPLES,), generator=drawn))


def loss_fn(model: Any, batch: Any) -> Tensor:
    return cross_entropy(model(batch[0]), batch[1])


def plain(model: nn.Module | None = None, seed: int = 0, **more: Any) -> steadyrun.Task:
    """A task around a model, with a sampler that splits the data."""
    torch.manual_seed(seed)
    model = Net() if model is None else model
    data = more.pop("data", None) or dataset()
    loader = more.pop("loader") if "loader" in more else DataLoader(data, 8, sampler=DistributedSampler(data))
    given = more.pop("loss_fn", loss_fn)
    return steadyrun.Task(model, torch.optim.SGD(model.parameters(), lr=0.1), given, loader=loader, **more)


def ddp(model: nn.Module | None = None, seed: int = 0, in_sync: bool = True, **more: Any) -> steadyrun.Task:
    torch.manual_seed(seed)
    return plain(DistributedDataParallel(Net() if model is None else model, init_sync=in_sync), seed, **more)


def sharded(**more: Any) -> steadyrun.Task:
    torch.manual_seed(0)
    model = Net()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (model.up, model.down):
        fully_shard(layer, mesh=mesh)
    return plain(fully_shard(model, mesh=mesh), **more)


def tensor_parallel(*, equal: bool = False, **more: Any) -> steadyrun.Task:
    torch.manual_seed(0)
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    model = parallelize_module(Net(), init_device_mesh("cpu", (dist.get_world_size(),)), plan)
    if equal:
        torch.manual_seed(1)
        for parameter in (model.up.weight, model.down.weight):
            nn.init.normal_(parameter.to_local().detach(), std=0.1)
    return plain(model, loader=DataLoader(dataset(), 8), **more)


def clipping(local: bool) -> Callable[[steadyrun.Task, Any], Tensor]:
    def train_step(task: steadyrun.Task, batch: Any) -> Tensor:
        task.optimizer.zero_grad()
        loss = task.loss_fn(task.model, batch)
        loss.backward()
        parameters = list(task.model.parameters())
        if local:
            shards = [parameter.grad.to_local() for parameter in parameters]
            norm = torch.stack([shard.norm() for shard in shards]).norm()
            for shard in shards:
                shard.mul_((0.05 / norm).clamp(max=1))
        else:
            nn.utils.clip_grad_norm_(parameters, 0.05)
        task.optimizer.step()
        return loss

    return train_step


def nearly_equal_factors(task: steadyrun.Task, batch: Any) -> Tensor:
    """As if the shards of two ranks had norms that differ by 2%."""
    task.optimizer.zero_grad()
    loss = task.loss_fn(task.model, batch)
    loss.backward()
    for parameter in task.model.parameters():
        parameter.grad.to_local().mul_(0.2 + 0.004 * dist.get_rank())
    task.optimizer.step()
    return loss


def averaging(divide: bool) -> Callable[[steadyrun.Task, Any], Tensor]:
    """A step that reduces gradients by hand."""

    def train_step(task: steadyrun.Task, batch: Any) -> Tensor:
        task.optimizer.zero_grad()
        loss = task.loss_fn(task.model, batch)
        loss.backward()
        for parameter in task.model.parameters():
            dist.all_reduce(parameter.grad)
            if divide:
                parameter.grad /= dist.get_world_size()
        task.optimizer.step()
        return loss

    return train_step


def accumulating(task: steadyrun.Task, batches: Any, last_in_sync: bool = True) -> Tensor:
    task.optimizer.zero_grad()
    total = torch.zeros(())
    for index, batch in enumerate(batches):
        task.model.require_backward_grad_sync = last_in_sync and index == len(batches) - 1
        loss = task.loss_fn(task.model, batch) / len(batches)
        loss.backward()
        total += loss.detach()
    task.model.require_backward_grad_sync = True
    task.optimizer.step()
    return total


def masked() -> TensorDataset:
    """Rank 0 reads even examples, rank 1 odd ones: a fifth of those have a label that counts."""
    inputs, labels = dataset().tensors
    odd = torch.arange(EXAMPLES) % 2 == 1
    ignored = odd & (torch.arange(EXAMPLES) // 2 % 4 != 0)
    return TensorDataset(inputs, torch.where(ignored, -100, labels))


def in_order(data: TensorDataset) -> DataLoader[Any]:
    return DataLoader(data, 8, sampler=DistributedSampler(data, shuffle=False))


def by_tokens(model: Any, batch: Any) -> Tensor:
    """The mean over the targets of all ranks, as DDP averages it."""
    count = (batch[1] != -100).sum().float()
    dist.all_reduce(count)
    return cross_entropy(model(batch[0]), batch[1], reduction="sum") * dist.get_world_size() / count


def contrastive(model: Any, batch: Any) -> Tensor:
    outputs = nn.functional.normalize(model(batch[0]), dim=1)
    return cross_entropy(outputs @ outputs.T / 0.1, torch.arange(len(outputs)))


def tuple_loader(seed_by_rank: bool) -> DataLoader[Any]:
    drawn = torch.Generator().manual_seed(dist.get_rank() if seed_by_rank else 0)
    return DataLoader(dataset(), 8, shuffle=True, generator=drawn)


def past_ddp(model: Any, batch: Any) -> Tensor:
    return cross_entropy(getattr(model, "module", model)(batch[0]), batch[1])


def summed(model: Any, batch: Any) -> Tensor:
    return cross_entropy(model(batch[0]), batch[1], reduction="sum")


ACCUMULATION = {"accumulation": 2}

HEALTHY: dict[str, Callable[[], steadyrun.Task]] = {
    "ddp": ddp,
    "fsdp": sharded,
    "fsdp, clipped": lambda: sharded(train_step=clipping(local=False)),
    "tensor parallel": tensor_parallel,
    "ddp, accumulation": lambda: ddp(train_step=accumulating, config=ACCUMULATION),
    "ddp, batch norm": lambda: ddp(Net(nn.BatchNorm1d(32))),
    "ddp, dropout": lambda: ddp(Net(nn.Dropout(0.5))),
    "averaged by hand": lambda: plain(train_step=averaging(divide=True)),
    "mean over the tokens of all ranks": lambda: ddp(loader=in_order(masked()), loss_fn=by_tokens),
    "contrastive": lambda: ddp(loss_fn=contrastive),
}

BROKEN: dict[str, tuple[Callable[[], steadyrun.Task], str]] = {
    "past ddp": (lambda: ddp(loss_fn=past_ddp), "R1.1 not-averaged"),
    "no sync on the last": (
        lambda: ddp(train_step=lambda task, batches: accumulating(task, batches, False), config=ACCUMULATION),
        "R1.1 not-averaged",
    ),
    "no wrapper": (plain, "R1.1 not-averaged"),
    "summed by hand": (lambda: plain(train_step=averaging(divide=False)), "R5.1 sum"),
    "averaged twice": (
        lambda: ddp(loss_fn=lambda m, b: loss_fn(m, b), train_step=averaged_twice),
        "R5.1 divided-twice",
    ),
    "sum loss": (lambda: ddp(loss_fn=summed), "R5.1 sum-loss"),
    "mean of means": (lambda: ddp(loader=in_order(masked())), "R5.1 mean-of-means"),
    "fsdp, mean of means": (lambda: sharded(loader=in_order(masked())), "R5.1 mean-of-means"),
    "local clipping, norms nearly equal": (lambda: sharded(train_step=nearly_equal_factors), "R1.5 local-norm"),
    "local clipping": (lambda: sharded(train_step=clipping(local=True)), "R1.5 local-norm"),
    "equal shards": (lambda: tensor_parallel(equal=True), "R1.6 equal"),
    "other start": (lambda: ddp(seed=dist.get_rank(), in_sync=False), "R1.2 other-start"),
    "no sampler": (lambda: ddp(loader=tuple_loader(seed_by_rank=False)), "R2.1 same"),
    "own order": (lambda: ddp(loader=tuple_loader(seed_by_rank=True)), "R2.1 perhaps-overlap"),
    "sampler of another seed": (
        lambda: ddp(loader=DataLoader(dataset(), 8, sampler=DistributedSampler(dataset(), seed=dist.get_rank()))),
        "R2.1 overlap",
    ),
    "sampler of four ranks": (
        lambda: ddp(loader=DataLoader(dataset(), 8, sampler=DistributedSampler(dataset(), 4, dist.get_rank()))),
        "R5.2 missed",
    ),
    "different batches of tensor-parallel ranks": (
        lambda: tensor_parallel_apart(),
        "R2.1 apart",
    ),
}


def averaged_twice(task: steadyrun.Task, batch: Any) -> Tensor:
    task.optimizer.zero_grad()
    loss = task.loss_fn(task.model, batch)
    (loss / dist.get_world_size()).backward()
    task.optimizer.step()
    return loss


def tensor_parallel_apart() -> steadyrun.Task:
    task = tensor_parallel()
    task.loader = in_order(dataset())
    return task
