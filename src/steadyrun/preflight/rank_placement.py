"""How a model lies on the ranks: which ranks hold the same parameter, a part of it, and whose data must differ."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from steadyrun.program.model_parts import clean, unwrapped

DDP, FSDP, TENSOR_PARALLEL, BY_HAND = "DDP", "FSDP2", "tensor parallel", "no wrapper"


@dataclass(frozen=True)
class Placement:
    """One parameter as one rank sees it."""

    replicas: tuple[int, ...]  # ranks that must hold the same bits, this one included; empty if not known
    shards: tuple[int, ...] = ()  # ranks that hold other parts of it


@dataclass(frozen=True)
class Layout:
    """The model of one rank."""

    kind: str
    parameters: dict[str, Placement] = field(default_factory=dict)
    data_ranks: tuple[int, ...] = ()  # ranks whose batches make one step together, this one included


def layout(model: nn.Module, world: int) -> Layout:
    """Read the layout from DDP, FSDP2 and the meshes of DTensors."""
    everyone, me = tuple(range(world)), dist.get_rank()
    wrappers = [module for module in model.modules() if isinstance(module, nn.parallel.DistributedDataParallel)]
    replicated = {
        id(parameter): tuple(dist.get_process_group_ranks(wrapper.process_group))
        for wrapper in wrappers
        for name, parameter in wrapper.module.named_parameters()
        if name not in wrapper.parameters_to_ignore
    }
    placed = {
        clean(name): _placement(parameter, replicated.get(id(parameter), ()))
        for name, parameter in unwrapped(model).named_parameters()
    }
    meshes = [ranks for module in model.modules() if (ranks := _sharding_ranks(module))]
    if meshes:
        return Layout(FSDP, placed, max(meshes, key=len))
    if wrappers:
        return Layout(DDP, placed, tuple(dist.get_process_group_ranks(wrappers[0].process_group)))
    if any(placement.shards for placement in placed.values()):
        return Layout(TENSOR_PARALLEL, placed, (me,))
    return Layout(BY_HAND, placed, everyone)


def _placement(parameter: Tensor, replicas: tuple[int, ...]) -> Placement:
    mesh: Any = getattr(parameter, "device_mesh", None)
    placements: Any = getattr(parameter, "placements", None)
    if mesh is None or placements is None:
        return Placement(replicas)
    ranks = mesh.mesh
    mine = mesh.get_coordinate()
    if mine is None:
        return Placement(())
    held, parts = [], []
    for coordinate in itertools.product(*(range(size) for size in ranks.shape)):
        differs = any(
            placement.is_shard() and at != here
            for placement, at, here in zip(placements, coordinate, mine, strict=True)
        )
        (parts if differs else held).append(int(ranks[coordinate]))
    return Placement(tuple(held), tuple(parts))


def _sharding_ranks(module: nn.Module) -> tuple[int, ...]:
    """The ranks over which FSDP2 shards a module; empty if it does not."""
    state = getattr(module, "_get_fsdp_state", None)
    group = getattr(state(), "_fsdp_param_group", None) if callable(state) else None
    mesh = getattr(getattr(group, "mesh_info", None), "mesh", None)
    return () if mesh is None else tuple(int(rank) for rank in mesh.mesh.flatten())
