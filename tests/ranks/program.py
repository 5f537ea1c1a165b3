"""A program for several ranks: trains the named cases one after the other in one process group, and records each.

python -m torch.distributed.run --nproc-per-node 2 program.py FOLDER CASE…

A case is a healthy program or one mistake in it.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Sampler, TensorDataset

import steadyrun

EXAMPLES, CLASSES, WIDTH, EPOCHS = 256, 4, 8, 12


def dataset(count: int = EXAMPLES, seed: int = 3) -> TensorDataset:
    weights = torch.randn(WIDTH, CLASSES, generator=torch.Generator().manual_seed(1))
    inputs = torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(inputs, (inputs @ weights).argmax(1))


def network(*, norm: bool = False, dropout: float = 0.0, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers: list[nn.Module] = [nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, CLASSES)]
    if norm:
        layers.insert(1, nn.BatchNorm1d(32))
    if dropout:
        layers.insert(-1, nn.Dropout(dropout))
    return nn.Sequential(*layers)


def ddp(model: nn.Module, **options: Any) -> nn.Module:
    return DistributedDataParallel(model, **options)


@dataclass
class Program:
    """A healthy program; a case replaces what it does otherwise."""

    model: Callable[[], nn.Module] = lambda: ddp(network())
    data: Callable[[], TensorDataset] = dataset
    called: Callable[[nn.Module], nn.Module] = lambda model: model
    validated: Callable[[nn.Module], nn.Module] = lambda model: model
    validates: Callable[[], bool] = lambda: True
    sampler: Callable[[TensorDataset], Any] = lambda data: DistributedSampler(data, seed=5)
    batch_size: int = 16
    sets_epoch: bool = True
    rate: float = 1e-2
    micro: int = 1
    synced: Callable[[int, int], bool] = lambda index, count: index == count - 1
    scaler: Callable[[], Any] = lambda: None
    before_step: Callable[[nn.Module, int], None] = lambda model, step: None
    after_step: Callable[[nn.Module, int], None] = lambda model, step: None
    at_end: Callable[[nn.Module], None] = lambda model: None
    batch: Callable[[Any, int], Any] = lambda batch, step: batch
    gives_batch: bool = True
    again: Callable[[nn.Module], nn.Module] | None = None  # what a second pass over the batch goes through
    joins: bool = False
    config: dict[str, Any] = field(default_factory=dict)
    optimizer: Callable[[Any, float], Any] = lambda parameters, rate: torch.optim.AdamW(parameters, lr=rate)

    def train(self, folder: Path) -> None:
        model = self.model()
        optimizer = self.optimizer(model.parameters(), self.rate)
        data = self.data()
        sampler = self.sampler(data)
        loader = DataLoader(data, batch_size=self.batch_size, sampler=sampler, shuffle=sampler is None)
        val = dataset(64, seed=4).tensors
        torch.manual_seed(100 + dist.get_rank())
        config = {"num_classes": CLASSES, **self.config}
        with steadyrun.record(folder, config) as run, Join([model]) if self.joins else nullcontext():
            scaler = self.scaler()
            run.watch(model, optimizer, scaler=scaler, monitor=False)
            step = 0
            for epoch in range(EPOCHS):
                if self.sets_epoch and hasattr(sampler, "set_epoch"):
                    sampler.set_epoch(epoch)
                for batch in loader:
                    given = self.batch(batch, step)
                    loss = self.passes(model, given, scaler)
                    self.before_step(model, step)
                    if scaler is None:
                        optimizer.step()
                    else:
                        scaler.step(optimizer)
                        scaler.update()
                    optimizer.zero_grad()
                    self.after_step(model, step)
                    run.step(loss, **({"batch": given} if self.gives_batch else {}))
                    step += 1
                if not self.joins and self.validates():
                    self.validate(run, model, val)
            self.at_end(model)

    def passes(self, model: nn.Module, batch: Any, scaler: Any) -> torch.Tensor:
        """The forward and backward passes of a step; the mean loss of its micro-batches."""
        losses = []
        parts = list(zip(*(tensor.chunk(self.micro) for tensor in batch), strict=True))
        for index, (inputs, targets) in enumerate(parts):
            synced = self.synced(index, len(parts))
            if isinstance(model, FSDPModule):
                model.set_requires_gradient_sync(synced)
            with model.no_sync() if hasattr(model, "no_sync") and not synced else nullcontext():
                loss = nn.functional.cross_entropy(self.called(model)(inputs), targets)
                part = loss / len(parts)
                (part if scaler is None else scaler.scale(part)).backward()
            losses.append(loss.detach())
        if self.again is not None:
            nn.functional.cross_entropy(self.again(model)(batch[0].flip(0)), batch[1].flip(0)).mul(0.3).backward()
        return torch.stack(losses).mean()

    def validate(self, run: Any, model: nn.Module, val: Any) -> None:
        model.eval()
        with torch.no_grad():
            run.val(nn.functional.cross_entropy(self.validated(model)(val[0]), val[1]))
        model.train()


def rank() -> int:
    return dist.get_rank()


def last() -> bool:
    """Whether this is the rank on which things go wrong."""
    return dist.get_rank() == dist.get_world_size() - 1


# -- healthy programs -----------------------------------------------------------------------------------------


def fsdp() -> nn.Module:
    model = network()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def sharded_and_parallel() -> nn.Module:
    """Tensor-parallel layers within pairs of ranks, sharded over the pairs."""
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))
    model = network()
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    return model


def of_pairs(data: TensorDataset) -> Any:
    return DistributedSampler(data, num_replicas=dist.get_world_size() // 2, rank=rank() // 2, seed=5)


def replicated_shards() -> nn.Module:
    """Shards of every pair of ranks, replicated over the pairs."""
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("replicate", "shard"))
    model = network()
    fully_shard(model, mesh=mesh)
    return model


def with_hook(hook: Any, state: Any = None) -> nn.Module:
    model = ddp(network())
    model.register_comm_hook(state, hook)
    return model


class Drawn(Sampler[int]):
    """Each rank's part of examples that are drawn with replacement, as weighted samplers do."""

    def __init__(self, data: TensorDataset) -> None:
        self._size, self._epoch = len(data), 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __len__(self) -> int:
        return self._size // dist.get_world_size()

    def __iter__(self) -> Iterator[int]:
        drawn = torch.randint(0, self._size, (self._size,), generator=torch.Generator().manual_seed(self._epoch))
        return iter(drawn[rank() :: dist.get_world_size()].tolist())


class Unused(nn.Module):
    """A network whose second half a rank leaves out at some steps."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.more, self.head = nn.Linear(WIDTH, 32), nn.Linear(32, 32), nn.Linear(32, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.body(inputs).relu()
        if not self.training or torch.rand(()) > 0.3:
            hidden = hidden + self.more(hidden).relu()
        return self.head(hidden)


def average_parameters(model: nn.Module, step: int) -> None:
    """Local SGD."""
    if step % 10 == 9:
        for parameter in model.parameters():
            dist.all_reduce(parameter.data)
            parameter.data /= dist.get_world_size()


def tensor_parallel(model: nn.Module) -> nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return model


def clip(model: nn.Module, threshold: float = 0.5) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), threshold)


class Average:
    """An average of the weights, kept by rank 0 alone."""

    def __init__(self) -> None:
        self.copy: nn.Module | None = None

    def __call__(self, model: nn.Module, _step: int) -> None:
        if rank():
            return
        inner = model.module
        self.copy = self.copy or copy.deepcopy(inner)
        with torch.no_grad():
            for mine, theirs in zip(self.copy.parameters(), inner.parameters(), strict=True):
                mine.lerp_(theirs, 0.01)


def average_by_hand(model: nn.Module, _step: int) -> None:
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def load_best(model: nn.Module) -> None:
    """Rank 0 alone loads other parameters, to evaluate them."""
    if not rank():
        model.load_state_dict({name: 0.9 * value for name, value in model.state_dict().items()})


def add_up(model: nn.Module, _step: int) -> None:
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)


def clip_and_average(model: nn.Module, step: int) -> None:
    clip(model, 0.05)
    average_by_hand(model, step)


def average_all_but_one(model: nn.Module, _step: int) -> None:
    for name, parameter in model.named_parameters():
        if name != "4.bias":
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


def duplicated() -> TensorDataset:
    """Every example twice."""
    inputs, targets = dataset(EXAMPLES // 2).tensors
    return TensorDataset(inputs.repeat_interleave(2, 0), targets.repeat_interleave(2, 0))


def own_group() -> Any:
    return [dist.new_group([each]) for each in range(dist.get_world_size())][rank()]


def own_split() -> TensorDataset:
    """Each rank splits off its validation data at random."""
    kept = torch.randperm(EXAMPLES, generator=torch.Generator().manual_seed(rank()))[: EXAMPLES * 9 // 10]
    return TensorDataset(*(tensor[kept] for tensor in dataset().tensors))


def uneven() -> TensorDataset:
    """The last rank has fewer examples."""
    inputs, targets = dataset().tensors
    mine = slice(rank(), None, dist.get_world_size())
    inputs, targets = inputs[mine], targets[mine]
    return TensorDataset(inputs[:-32], targets[:-32]) if last() else TensorDataset(inputs, targets)


HEALTHY: dict[str, Callable[[], Program]] = {
    "ddp": lambda: Program(before_step=lambda model, _: clip(model)),
    "batch-norm": lambda: Program(model=lambda: ddp(network(norm=True))),
    "dropout": lambda: Program(model=lambda: ddp(network(dropout=0.1))),
    "padded": lambda: Program(data=lambda: dataset(EXAMPLES - 1)),
    "duplicates": lambda: Program(data=duplicated),
    "accumulation": lambda: Program(micro=2, config={"accumulation": 2}),
    "ema": lambda: Program(after_step=Average()),
    "join": lambda: Program(data=uneven, sampler=lambda data: None, joins=True),
    "fsdp": lambda: Program(model=fsdp, before_step=lambda model, _: clip(model)),
    "tensor-parallel": lambda: Program(
        model=lambda: tensor_parallel(network()),
        sampler=lambda data: DistributedSampler(data, num_replicas=1, rank=0, seed=5),
    ),
    "by-hand": lambda: Program(model=network, before_step=average_by_hand),
    "best-loaded": lambda: Program(at_end=load_best),
    "zero": lambda: Program(
        optimizer=lambda parameters, rate: ZeroRedundancyOptimizer(parameters, torch.optim.AdamW, lr=rate)
    ),
    "apart": lambda: Program(model=lambda: network(seed=rank())),
    "two-passes": lambda: Program(
        model=lambda: ddp(network(), find_unused_parameters=True), again=lambda model: model, config={"accumulation": 2}
    ),
    "unused": lambda: Program(model=lambda: ddp(Unused(), find_unused_parameters=True)),
    "static-graph": lambda: Program(model=lambda: ddp(network(), static_graph=True, gradient_as_bucket_view=True)),
    "fsdp-accumulation": lambda: Program(model=fsdp, micro=2, config={"accumulation": 2}),
    "replicated-shards": lambda: Program(model=replicated_shards),
    "power-sgd": lambda: Program(model=lambda: with_hook(powerSGD_hook, PowerSGDState(None, start_powerSGD_iter=10))),
    "drawn-with-replacement": lambda: Program(sampler=Drawn),
    "validated-on-one": lambda: Program(
        model=lambda: ddp(network(norm=True)), validated=lambda model: model.module, validates=lambda: not rank()
    ),
    "fsdp-tensor-parallel": lambda: Program(model=sharded_and_parallel, sampler=of_pairs),
    "compressed": lambda: Program(model=lambda: with_hook(fp16_compress_hook)),
    "local-sgd": lambda: Program(model=network, after_step=average_parameters),
    "augmented": lambda: Program(
        batch=lambda batch, step: (batch[0] + 0.1 * torch.randn_like(batch[0]), batch[1]), gives_batch=False
    ),
}


# -- mistakes -------------------------------------------------------------------------------------------------


class Outside(nn.Module):
    """A head that was made after the model was wrapped."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(CLASSES, CLASSES)
        with torch.no_grad():
            self.head.weight.copy_(torch.eye(CLASSES))
            self.head.bias.zero_()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(inputs))


def flip(model: nn.Module, step: int) -> None:
    """One bit of one weight of the last rank."""
    if step == 15 and last():
        with torch.no_grad():
            bits = next(model.parameters()).view(torch.int32)
            bits.flatten()[7] ^= 1 << 13


def flip_moment(model: nn.Module, step: int) -> None:
    """One bit of a gradient of the last rank, which the optimizer's moments keep."""
    if step == 15 and last():
        next(model.parameters()).grad.view(torch.int32).flatten()[7] ^= 1 << 24


def optimizer_of_half(parameters: Any, rate: float) -> torch.optim.Optimizer:
    """The last rank builds its optimizer without the first layer."""
    kept = list(parameters)
    return torch.optim.AdamW(kept[2:] if last() else kept, lr=rate)


def state_on_one(parameters: Any, rate: float) -> torch.optim.Optimizer:
    """Rank 0 alone loads the state of an optimizer that has stepped."""
    optimizer = torch.optim.AdamW(parameters, lr=rate)
    if not rank():
        for parameter in optimizer.param_groups[0]["params"]:
            state = {"step": torch.tensor(9.0), "exp_avg": torch.zeros_like(parameter)}
            optimizer.state[parameter] = state | {"exp_avg_sq": torch.full_like(parameter, 0.01)}
    return optimizer


def loaded_on_one(model: nn.Module) -> nn.Module:
    """A checkpoint that rank 0 alone loads, after DDP has copied the parameters."""
    if not rank():
        model.module.load_state_dict(network(seed=1).state_dict())
    return model


def some_equal_shards(model: nn.Module) -> nn.Module:
    """One weight's shards are drawn with one seed on every rank."""
    torch.manual_seed(0)
    with torch.no_grad():
        model[0].weight.to_local().normal_(0, 0.1)
    return model


def change_late(model: nn.Module, step: int) -> None:
    """A weight of the last rank, after the last sampled step."""
    if step == 160 // dist.get_world_size() and last():
        with torch.no_grad():
            model.module[2].weight[3, 4] += 0.05


def nan(batch: Any, step: int) -> Any:
    inputs, targets = batch
    return (inputs * float("nan") if step == 30 and last() else inputs), targets


def local_clip(model: nn.Module, _step: int) -> None:
    shards = [parameter.grad.to_local() for parameter in model.parameters()]
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(shard) for shard in shards]))
    for shard in shards:
        shard.mul_(min(1.0, 0.1 / float(norm)))


def equal_shards(model: nn.Module) -> nn.Module:
    """The local shards are drawn with one seed on every rank."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if hasattr(parameter, "to_local"):
                local = parameter.to_local()
                local.copy_(torch.randn(local.shape) * 0.1)
    return model


FAULTS: dict[str, Callable[[], Program]] = {
    "past-ddp": lambda: Program(called=lambda model: model.module),
    "no-sync": lambda: Program(micro=2, synced=lambda index, count: index != count - 1),
    "outside": lambda: Program(model=lambda: Outside(ddp(network()))),
    "loss-scale": lambda: Program(scaler=lambda: torch.amp.GradScaler("cpu", init_scale=512.0 if last() else 1024.0)),
    "clip-by-rank": lambda: Program(before_step=lambda model, _: clip(model, 0.05) if last() else None),
    "rate": lambda: Program(rate=2e-2 if last() else 1e-2),
    "other-start": lambda: Program(model=lambda: network(seed=rank()), before_step=average_by_hand),
    "bit-flip": lambda: Program(after_step=flip),
    "by-hand-in-part": lambda: Program(model=network, before_step=average_all_but_one),
    "late-change": lambda: Program(after_step=change_late),
    "same-data": lambda: Program(sampler=lambda data: DistributedSampler(data, num_replicas=1, rank=0, seed=5)),
    "sampler-seed": lambda: Program(sampler=lambda data: DistributedSampler(data, seed=rank())),
    "set-epoch": lambda: Program(sets_epoch=False),
    "decay": lambda: Program(
        optimizer=lambda parameters, rate: torch.optim.AdamW(parameters, lr=rate, weight_decay=0.1 * last())
    ),
    "fewer-parameters": lambda: Program(optimizer=optimizer_of_half),
    "state-on-one": lambda: Program(optimizer=state_on_one),
    "fsdp-unsynced": lambda: Program(
        model=fsdp, micro=2, synced=lambda index, count: index != count - 1, config={"accumulation": 2}
    ),
    "parallel-on-other-data": lambda: Program(model=lambda: tensor_parallel(network())),
    "nan": lambda: Program(batch=nan),
    "broadcast-off": lambda: Program(model=lambda: ddp(network(norm=True), broadcast_buffers=False)),
    "local-norm": lambda: Program(model=fsdp, before_step=local_clip, config={"clip": 0.1}),
    "equal-shards": lambda: Program(
        model=lambda: equal_shards(tensor_parallel(network())),
        sampler=lambda data: DistributedSampler(data, num_replicas=1, rank=0, seed=5),
    ),
    "other-transform": lambda: Program(batch=lambda batch, _: (batch[0] * (20 if last() else 1), batch[1])),
    "evaluation-mode": lambda: Program(
        model=lambda: ddp(network(dropout=0.1)),
        after_step=lambda model, step: model.eval() if step == 9 and last() else None,
        validates=lambda: False,
    ),
    "group-of-one": lambda: Program(model=lambda: ddp(network(), process_group=own_group())),
    "own-split": lambda: Program(data=own_split),
    "no-sampler": lambda: Program(sampler=lambda data: None),
    "second-pass": lambda: Program(again=lambda model: model.module, config={"accumulation": 2}),
    "never-averaged": lambda: Program(model=network),
    "added-up": lambda: Program(model=network, before_step=add_up),
    "clip-early": lambda: Program(model=network, before_step=clip_and_average),
    "no-batch": lambda: Program(
        sampler=lambda data: DistributedSampler(data, num_replicas=1, rank=0, seed=5), gives_batch=False
    ),
    "hook": lambda: Program(model=lambda: with_hook(noop_hook)),
    "loaded": lambda: Program(model=lambda: loaded_on_one(ddp(network()))),
    "gradient-flip": lambda: Program(before_step=flip_moment),
    "some-shards": lambda: Program(
        model=lambda: some_equal_shards(tensor_parallel(network())),
        sampler=lambda data: DistributedSampler(data, num_replicas=1, rank=0, seed=5),
    ),
}
CASES = HEALTHY | FAULTS


def main() -> None:
    folder, chosen = Path(sys.argv[1]), sys.argv[2:]
    dist.init_process_group("gloo")
    for name in chosen:
        CASES[name]().train(folder / name)
        dist.barrier()
    store = dist.distributed_c10d._get_default_store()
    store.set(f"done {rank()}", "")  # gloo aborts if the other side closes while the barrier is being left
    store.wait([f"done {each}" for each in range(dist.get_world_size())])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
