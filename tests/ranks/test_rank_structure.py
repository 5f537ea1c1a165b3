"""Which ranks hold what, read from DDP wrappers and meshes; torch's fake process group has many ranks in a process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

import steadyrun
from steadyrun.probes.rank_structure import Structure, find_structure
from steadyrun.store.ranks import rank_range


@contextmanager
def one_of(world: int, rank: int) -> Iterator[None]:
    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


def two_layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def ranks(structure: Structure) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    return {name: (found.replicas, found.shards) for name, found in structure.classes.items()}


def read(model: nn.Module) -> Structure:
    return find_structure(model, list(model.parameters()))


@pytest.mark.parametrize("watched", ["wrapper", "inside", "around"])
def test_ddp_is_found_wherever_the_watched_module_is(watched: str) -> None:
    with one_of(4, 1):
        group = dist.new_group([1, 3])
        wrapper = DistributedDataParallel(two_layers(), process_group=group)
        wrapper.broadcast_buffers = False
        model = {"wrapper": wrapper, "inside": wrapper.module, "around": nn.Sequential(wrapper)}[watched]
        structure = read(model)
    assert structure.kind == "ddp"
    assert ranks(structure) == {"replicated": ((1, 3), (1,))}
    assert structure.of == ["replicated"] * 4
    assert structure.broadcast_buffers is False


def test_parameters_that_ddp_does_not_average() -> None:
    with one_of(2, 0):
        inner = two_layers()
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(inner, ["2.bias"])
        model = nn.ModuleDict({"body": DistributedDataParallel(inner), "head": nn.Linear(4, 2)})
        structure = read(model)
    assert structure.kind == "ddp"
    assert structure.of == ["replicated"] * 3 + ["outside"] * 3
    assert set(structure.classes) == {"replicated"}


def test_a_wrapper_of_another_model_does_not_count() -> None:
    with one_of(2, 0):
        other = DistributedDataParallel(two_layers())
        structure = read(two_layers())
    assert other is not None
    assert (structure.kind, structure.classes, set(structure.of)) == ("unknown", {}, {"unknown"})


def test_without_a_process_group_nothing_is_known() -> None:
    structure = read(two_layers())
    assert (structure.kind, structure.classes, set(structure.of)) == ("unknown", {}, {"unknown"})


@pytest.mark.parametrize("rank", [0, 5])
def test_hybrid_sharding_has_replicas_of_shards(rank: int) -> None:
    with one_of(8, rank):
        mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("replicate", "shard"))
        model = two_layers()
        fully_shard(model, mesh=mesh)
        structure = read(model)
    assert structure.kind == "fsdp"
    expected = ((0, 4), (0, 1, 2, 3)) if rank == 0 else ((1, 5), (4, 5, 6, 7))
    assert ranks(structure) == {"sharded": expected}


def test_sharding_of_tensor_parallel_layers() -> None:
    with one_of(8, 6):
        mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("dp", "tp"))
        model = two_layers()
        parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(model, mesh=mesh["dp"])
        structure = read(model)
    assert structure.kind == "mixed"
    assert ranks(structure) == {
        "sharded-dp-tp": ((6,), tuple(range(8))),
        "sharded-dp": ((6, 7), (0, 2, 4, 6)),  # the bias of the second layer, equal on both ranks of a tensor
    }
    assert structure.of == ["sharded-dp-tp"] * 3 + ["sharded-dp"]
    assert structure.data == (0, 2, 4, 6)


def test_parameters_of_one_name_on_two_meshes_are_two_classes() -> None:
    with one_of(8, 6):
        mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("dp", "tp"))
        model = nn.Sequential(*two_layers(), nn.Linear(4, 4))
        parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(model, mesh=mesh["dp"])
        structure = read(model)
    found = ranks(structure)
    assert found["sharded-dp"] == ((6, 7), (0, 2, 4, 6))
    assert found["sharded-dp-2"] == ((6,), (0, 2, 4, 6))  # the last layer: nothing shows that it is equal on 6 and 7
    assert structure.data == (0, 2, 4, 6)


def test_the_ranks_that_train_on_different_data() -> None:
    with one_of(8, 5):
        mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("replicate", "shard"))
        hybrid = two_layers()
        fully_shard(hybrid, mesh=mesh)
        assert read(hybrid).data == tuple(range(8))
        assert read(DistributedDataParallel(two_layers())).data == tuple(range(8))
        layers = two_layers()
        parallelize_module(layers, init_device_mesh("cpu", (8,)), {"0": ColwiseParallel()})
        assert read(layers).data is None
        assert read(two_layers()).data is None


def test_a_communication_hook_is_named() -> None:
    with one_of(2, 0):
        wrapper = DistributedDataParallel(two_layers())
        assert read(wrapper).hook is None
        wrapper.register_comm_hook(None, allreduce_hook)
        assert read(wrapper).hook == "allreduce_hook"


def test_ddp_around_tensor_parallel_layers() -> None:
    with one_of(4, 3):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        layer = nn.Linear(4, 4, bias=False)
        weight = distribute_tensor(layer.weight.detach(), mesh["tp"], [Shard(0)])
        layer.weight = nn.Parameter(weight)
        structure = _with_averaging(layer, mesh["dp"].get_group())
    assert structure.kind == "mixed"
    assert ranks(structure) == {"sharded": ((1, 3), (2, 3))}


def _with_averaging(layer: nn.Module, group: dist.ProcessGroup) -> Structure:
    """DDP refuses some DTensors; what is read of a wrapper is given here."""
    wrapper = DistributedDataParallel(nn.Linear(1, 1), process_group=group)
    wrapper.module = layer
    return read(wrapper)


def test_a_parameter_that_is_replicated_over_a_mesh() -> None:
    with one_of(4, 2):
        mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
        layer = nn.Linear(4, 4, bias=False)
        layer.weight = nn.Parameter(distribute_tensor(layer.weight.detach(), mesh, [Replicate()]))
        assert isinstance(layer.weight, DTensor)
        structure = read(layer)
    assert ranks(structure) == {"replicated": ((0, 1, 2, 3), (2,))}
    assert structure.kind == "tensor-parallel"


def test_regular_ranks_are_short() -> None:
    assert rank_range([3]) == [3]
    assert rank_range([1, 3]) == [1, 3]
    assert rank_range(range(1024)) == {"first": 0, "count": 1024, "stride": 1}
    assert rank_range([1, 5, 9]) == {"first": 1, "count": 3, "stride": 4}
    assert rank_range([0, 1, 3]) == [0, 1, 3]


# -- in a run: WORLD_SIZE is set, torch.distributed may not be ---------------------------------------------------------


@pytest.fixture
def second_of_four(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("WORLD_SIZE", "4"), ("RANK", "1"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)


def train(
    path: Path, model: nn.Module, between: Callable[[], object] = lambda: None, *, every: int = 2, steps: int = 3
) -> steadyrun.RunView:
    val_loader = torch.utils.data.DataLoader(range(40))
    sampler = torch.utils.data.DistributedSampler(range(40), 4, 1, seed=7)
    loader = torch.utils.data.DataLoader(range(40), batch_size=5, sampler=sampler, drop_last=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with steadyrun.record(path, every=every) as run:
        run.watch(model, optimizer, monitor=False)
        between()
        for _ in range(steps):
            loss = model(torch.ones(2, 8)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss)
    assert (len(loader), len(val_loader)) == (2, 40)
    return steadyrun.open_run(path)


@pytest.mark.usefixtures("second_of_four")
def test_a_plain_model_of_a_job_without_torch_distributed(tmp_path: Path) -> None:
    view = train(tmp_path, two_layers())
    assert view.ranks == [1]
    assert view.events("probe-failed", 1) == []
    [process], [structure], [loader, validation] = (
        [event.fields for event in view.events(kind, 1)] for kind in ("process", "structure", "loader")
    )
    assert (validation["batches"], validation["num_replicas"]) == (40, None)
    assert (process["rank"], process["world"], process["local_rank"]) == (1, 4, 1)
    assert (structure["parallelism"], structure["classes"]) == ("unknown", {})
    assert loader == {
        "batches": 2, "sampler": "DistributedSampler", "shuffles": True, "workers": 0, "batch_size": 5,
        "num_replicas": 4, "rank": 1, "seed": 7, "epoch": 0, "drop_last": True, "dataset_size": 40,
    }  # fmt: skip
    for name in ("gradient_digest/unknown", "parameter_digest/unknown/0", "state_digest", "random_digest"):
        assert view.series(name, 1).steps.tolist() == [0, 1, 2]


def test_one_process_records_none_of_it(tmp_path: Path) -> None:
    view = train(tmp_path, two_layers())
    assert not [name for name in view.names() if "digest" in name]
    assert not [event for kind in ("process", "structure", "loader") for event in view.events(kind)]
    assert not list((tmp_path / "metrics").glob("*/digests*"))


def test_a_model_that_is_wrapped_after_watch(tmp_path: Path) -> None:
    with one_of(2, 0):
        model = two_layers()
        kept = []
        view = train(tmp_path, model, lambda: kept.append(DistributedDataParallel(model)))
    assert len(view.events("process")) == 1
    assert [event.fields["parallelism"] for event in view.events("structure")] == ["unknown", "ddp"]
    assert "start_digest/replicated" in view.names()
    assert "gradient_digest/unknown" not in view.names()


@pytest.mark.usefixtures("second_of_four")
def test_the_probe_can_be_turned_off(tmp_path: Path) -> None:
    assert not [name for name in train(tmp_path, two_layers(), every=0).names(1) if "digest" in name]


@pytest.mark.usefixtures("second_of_four")
def test_an_error_ends_the_probe_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("steadyrun.probes.digests.digest", fail)
    view = train(tmp_path, two_layers())
    assert [event.fields["probe"] for event in view.events("probe-failed", 1)] == ["digests"]
    assert len(view.series("loss", 1)) == len(view.series("grad_norm", 1)) == 3
