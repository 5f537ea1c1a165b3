"""How a model lies on the ranks: who holds the same parameter, who a part of it, and whose batches make one step."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch.distributed as dist
from torch import nn

from steadyrun.probes.rank_structure import ClassRanks, find_structure
from steadyrun.program.model_parts import clean, unwrapped

_UNKNOWN = ClassRanks((), ())


@dataclass(frozen=True)
class Placement:
    """One parameter as one rank sees it."""

    replicas: tuple[int, ...]  # ranks that must hold the same bits, this one included; empty if not known
    shards: tuple[int, ...]  # ranks that hold other parts of it


@dataclass(frozen=True)
class Layout:
    """The model of one rank."""

    parameters: dict[str, Placement] = field(default_factory=dict)
    data_ranks: tuple[int, ...] = ()  # ranks whose batches make one step together, this one included


def layout(model: nn.Module, world: int) -> Layout:
    """Read the layout from DDP, FSDP2 and the meshes of DTensors."""
    named = dict(unwrapped(model).named_parameters())
    structure, me = find_structure(model, list(named.values())), dist.get_rank()
    placed = {}
    for name, kind in zip(named, structure.of, strict=True):
        known = structure.classes.get(kind, _UNKNOWN)
        placed[clean(name)] = Placement(known.replicas, tuple(rank for rank in known.shards if rank != me))
    sharding = [ranks for module in model.modules() if (ranks := _sharding_ranks(module))]
    if sharding:
        return Layout(placed, max(sharding, key=len))
    if structure.kind == "unknown":
        return Layout(placed, tuple(range(world)))
    if structure.kind == "tensor-parallel":
        return Layout(placed, (me,))
    return Layout(placed, max((placement.replicas for placement in placed.values()), key=len))


def _sharding_ranks(module: nn.Module) -> tuple[int, ...]:
    """The ranks over which FSDP2 shards a module; empty if it does not."""
    state = getattr(module, "_get_fsdp_state", None)
    group = getattr(state(), "_fsdp_param_group", None) if callable(state) else None
    mesh = getattr(getattr(group, "mesh_info", None), "mesh", None)
    return () if mesh is None else tuple(int(rank) for rank in mesh.mesh.flatten())
