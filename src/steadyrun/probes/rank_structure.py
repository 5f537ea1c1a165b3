"""Which ranks hold the same parameters and which hold parts of them, as DDP wrappers and DTensors show it.

What they do not show is not guessed: such parameters belong to the class "unknown". Nothing here communicates.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from torch import Tensor, distributed, nn

from steadyrun.store.ranks import rank_range

REPLICATED, SHARDED, UNKNOWN = "replicated", "sharded", "unknown"
FSDP, MIXED = "fsdp", "mixed"
OUTSIDE = "outside"  # beside parameters that DDP averages, one that it does not


@dataclass(frozen=True)
class ClassRanks:
    """The ranks that hold the same bits as this one, and those that hold the other parts."""

    replicas: tuple[int, ...]
    shards: tuple[int, ...]


@dataclass(frozen=True)
class Structure:
    """How the parameters lie on the ranks; `of` names the class of each parameter."""

    kind: str
    classes: dict[str, ClassRanks]
    of: list[str]
    broadcast_buffers: bool | None = None
    hook: str | None = None  # of DDP: the function that decides what is averaged, instead of all gradients
    data: tuple[int, ...] | None = None  # the ranks that train on different data, if that is known

    def facts(self, blocks: Sequence[str], sizes: Sequence[int]) -> dict[str, Any]:
        """The fields of the event `structure`; a block belongs to the class of most of its elements."""
        elements: dict[str, dict[str, int]] = {}
        for name, block, size in zip(self.of, blocks, sizes, strict=True):
            counts = elements.setdefault(block, {})
            counts[name] = counts.get(name, 0) + size
        return {
            "parallelism": self.kind,
            "classes": {
                name: {"replicas": rank_range(ranks.replicas), "shards": rank_range(ranks.shards)}
                for name, ranks in self.classes.items()
            },
            "blocks": {block: max(counts, key=counts.__getitem__) for block, counts in elements.items()},
            "broadcast_buffers": self.broadcast_buffers,
            "hook": self.hook,
            "data": None if self.data is None else rank_range(self.data),
        }


def find_structure(model: nn.Module | None, parameters: Sequence[nn.Parameter]) -> Structure:
    """Read the structure of a model, which may be a wrapper or the module inside of one; None if it is not at hand."""
    if not distributed.is_available() or not distributed.is_initialized():
        return Structure("unknown", {}, [UNKNOWN] * len(parameters))
    wrappers = _wrappers(model, parameters)
    averaged = {id(each): group for wrapper in wrappers for each, group in _averaged(wrapper)}
    placements = [_placement(parameter, averaged.get(id(parameter))) for parameter in parameters]
    names = _names(placements)
    outside = OUTSIDE if averaged else UNKNOWN
    of = [outside if placement is None else names[placement] for placement in placements]
    classes = {name: ClassRanks(placement.replicas, placement.shards) for placement, name in names.items()}
    kind, broadcasts = _kind(model, placements, bool(averaged)), {_broadcasts(wrapper) for wrapper in wrappers}
    return Structure(
        kind,
        classes,
        of,
        broadcasts.pop() if len(broadcasts) == 1 else None,
        next((hook for wrapper in wrappers if (hook := _hook(wrapper))), None),
        tuple(sorted(set().union(*averaged.values()))) if averaged else _data_ranks(kind, parameters),
    )


def _wrappers(model: nn.Module | None, parameters: Sequence[nn.Parameter]) -> list[Any]:
    """The DDP wrappers in a model, else those around it: no path leads to them, so all objects are looked through."""
    kind, ids = nn.parallel.DistributedDataParallel, {id(parameter) for parameter in parameters}
    inside = [module for module in _modules(model) if isinstance(module, kind)]
    found = inside or [each for each in gc.get_objects() if issubclass(type(each), kind)]
    return [wrapper for wrapper in found if any(id(parameter) in ids for parameter in wrapper.parameters())]


def _averaged(wrapper: Any) -> list[tuple[nn.Parameter, tuple[int, ...]]]:
    """The parameters whose gradients a wrapper averages, with the ranks over which it does."""
    ranks = tuple(distributed.get_process_group_ranks(wrapper.process_group))
    ignored = wrapper.parameters_to_ignore
    return [(parameter, ranks) for name, parameter in wrapper.module.named_parameters() if name not in ignored]


def _broadcasts(wrapper: Any) -> bool:
    """Whether a wrapper has buffers, and broadcasts them before a pass; torch 2.13 has another name for it."""
    wanted = getattr(wrapper, "forward_sync_buffers", None) or wrapper.broadcast_buffers
    return bool(wanted) and any(True for _ in wrapper.module.buffers())


def _hook(wrapper: Any) -> str | None:
    """The communication hook of a wrapper, by name; None if it averages as DDP does."""
    hooks = getattr(wrapper, "_comm_hooks", None)
    return str(getattr(hooks[-1][0], "__qualname__", hooks[-1][0])) if hooks else None


def _data_ranks(kind: str, parameters: Sequence[Any]) -> tuple[int, ...] | None:
    """The ranks that train on different data, of a model that FSDP shards; None if that cannot be known.

    FSDP splits every parameter along one dimension of the mesh. Along one that splits some parameters only, the ranks
    hold parts of a layer and get the same data.
    """
    spread = [parameter for parameter in parameters if hasattr(parameter, "device_mesh")]
    if kind not in {FSDP, MIXED} or not spread:
        return None
    split = [set(compress(_dimensions(p.device_mesh), _split(p))) for p in spread]
    everywhere, somewhere = set.intersection(*split), set.union(*split)
    if len(everywhere) != 1:
        return None
    mesh = max((parameter.device_mesh for parameter in spread), key=lambda each: int(each.mesh.ndim))
    mine = (mesh.mesh == distributed.get_rank()).nonzero()[0].tolist()
    return _along(mesh.mesh, mine, [name not in somewhere - everywhere for name in _dimensions(mesh)])


def _dimensions(mesh: Any) -> list[str]:
    return list(mesh.mesh_dim_names or [f"dim{index}" for index in range(mesh.mesh.ndim)])


def _split(parameter: Any) -> list[bool]:
    """For each dimension of its mesh: whether a parameter is split along it."""
    return [not placement.is_replicate() for placement in parameter.placements]


@dataclass(frozen=True)
class _Placement:
    """Where a parameter lies; `axes` are the names of the mesh dimensions over which it is split."""

    replicas: tuple[int, ...]
    shards: tuple[int, ...]
    axes: tuple[str, ...]


def _placement(parameter: Any, averaged: tuple[int, ...] | None) -> _Placement | None:
    """The placement of one parameter, from its mesh and from the ranks that average it; None if neither is known."""
    me = distributed.get_rank()
    if not hasattr(parameter, "device_mesh"):
        return None if averaged is None else _Placement(averaged, (me,), ())
    mesh: Tensor = parameter.device_mesh.mesh
    found = (mesh == me).nonzero()
    if not len(found):
        return None
    split = _split(parameter)
    mine = found[0].tolist()
    replicas = _along(mesh, mine, [not each for each in split])
    if averaged is not None:  # the process group crosses the mesh
        replicas = tuple(sorted({rank + other - me for rank in replicas for other in averaged}))
    return _Placement(replicas, _along(mesh, mine, split), tuple(compress(_dimensions(parameter.device_mesh), split)))


def _along(mesh: Tensor, mine: list[int], free: list[bool]) -> tuple[int, ...]:
    """The ranks of a mesh that differ from mine in the free dimensions only."""
    index = tuple(slice(None) if each else at for each, at in zip(free, mine, strict=True))
    return tuple(sorted(mesh[index].flatten().tolist()))


def _names(placements: Sequence[_Placement | None]) -> dict[_Placement, str]:
    """A name for each placement: "sharded" alone if there is one such, else with the split dimensions of the mesh."""
    known = [placement for placement in dict.fromkeys(placements) if placement is not None]
    several = sum(bool(placement.axes) for placement in known) > 1
    names: dict[_Placement, str] = {}
    alike: dict[str, int] = {}
    for each in known:
        base = REPLICATED if not each.axes else "-".join([SHARDED, *each.axes]) if several else SHARDED
        alike[base] = alike.get(base, 0) + 1
        names[each] = base if alike[base] == 1 else f"{base}-{alike[base]}"
    return names


def _kind(model: nn.Module | None, placements: Sequence[_Placement | None], averaged: bool) -> str:
    split = {placement.axes for placement in placements if placement is not None and placement.axes}
    if averaged:
        return MIXED if split else "ddp"
    if not any(placements):
        return "unknown"
    if any("FSDPModule" in {base.__name__ for base in type(module).__mro__} for module in _modules(model)):
        return MIXED if any(len(axes) > 1 for axes in split) else FSDP
    return "tensor-parallel"


def _modules(model: nn.Module | None) -> list[nn.Module]:
    return [] if model is None else list(model.modules())
