"""Finds what a training script trains: the model, its parts, the scheduler and the loss scaler.

Modules, schedulers and scalers are found among the live objects of the process, once per training; nothing is called
on them but `parameters()`, and only what is watched is kept.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from steadyrun.program.frames import callers, variables
from steadyrun.text import counted

_FRAMES = 40
_NOT_THE_SCRIPT = ("torch", "steadyrun", "runpy")  # packages whose variables name nothing of the script's
_INSTALLED = {"site-packages", "dist-packages"}
_NAMED_ATTRIBUTES = 500  # of the objects that a frame calls self, at most


class ModelParts(nn.Module):
    """Several modules that one run trains, such as generator and discriminator. It is never called."""

    def __init__(self, parts: dict[str, nn.Module]) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)

    @property
    def training(self) -> bool:
        return any(part.training for part in self.children())

    @training.setter
    def training(self, mode: bool) -> None:
        """The parts keep their own modes."""


@dataclass
class TrainedObjects:
    """What is watched, and what was not certain about it."""

    model: nn.Module
    optimizers: list[torch.optim.Optimizer]
    scheduler: Any | None = None
    scaler: Any | None = None
    names: dict[int, str] = field(default_factory=dict)  # of optimizers, by id: the name of their part
    doubts: list[str] = field(default_factory=list)

    @property
    def has_parts(self) -> bool:
        return isinstance(self.model, ModelParts)


def owned(optimizer: torch.optim.Optimizer) -> set[int]:
    """The ids of an optimizer's parameters."""
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


def find(
    optimizers: list[torch.optim.Optimizer], called: nn.Module | None, frame: FrameType | None, wanted: str | None
) -> TrainedObjects | None:
    """The objects that these optimizers train; None if no module holds a parameter of theirs.

    `called` is the module whose training forward begins, `wanted` the variable that the user named as the model.
    """
    live = _LiveObjects()
    named = _names(frame)
    doubts: list[str] = []
    if wanted is not None:
        model = resolve(wanted, frame)
        if isinstance(model, nn.Module):
            return _with_helpers(TrainedObjects(model, optimizers), live)
        what = "no module of that name is in scope where training starts; recorded is what was found"
        doubts.append(f"--model {wanted}: {what}")
    own = {key for caller in _frames(frame) if not _is_installed(caller) for key in _named_in(caller)}
    per_optimizer = [_holders(held, _of_the_script(called, held, own), live.roots) for held in map(owned, optimizers)]
    modules = _distinct([module for modules in per_optimizer for module in modules])
    if not modules:
        return None
    parts = _named_parts(modules, named)
    model = modules[0] if len(modules) == 1 else ModelParts(parts)
    found = TrainedObjects(model, optimizers, doubts=doubts)
    name_of = {id(module): name for name, module in parts.items()}
    for optimizer, held in zip(optimizers, per_optimizer, strict=True):
        found.names[id(optimizer)] = next((name_of[id(m)] for m in held if id(m) in name_of), type(optimizer).__name__)
    everything = {id(parameter) for parameter in model.parameters()}
    loose = set().union(*map(owned, optimizers)) - everything
    if loose:
        doubts.append(f"{counted(len(loose), 'parameter')} of the optimizer in no module: not watched")
    return _with_helpers(found, live)


def resolve(dotted: str, frame: FrameType | None) -> Any | None:
    """What a name such as `net` or `self.model` means in the running functions, the innermost first."""
    first, *rest = dotted.split(".")
    for caller in _frames(frame):
        known = variables(caller)
        value = known[first] if first in known else caller.f_globals.get(first)
        for name in rest:
            value = getattr(value, "__dict__", {}).get(name, getattr(value, "_modules", {}).get(name))
        if value is not None:
            return value
    return None


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    for caller in islice(callers(frame), _FRAMES):
        if str(caller.f_globals.get("__name__")).partition(".")[0] not in _NOT_THE_SCRIPT:
            yield caller


class _LiveObjects:
    """Modules, schedulers and scalers that the process holds."""

    def __init__(self) -> None:
        modules: list[nn.Module] = []
        self.schedulers: list[Any] = []
        self.scalers: list[Any] = []
        for thing in gc.get_objects():
            kind = type(thing)
            if issubclass(kind, nn.Module):
                if kind is not ModelParts and "_modules" in vars(thing):  # ours, or one whose constructor still runs
                    modules.append(thing)
            elif issubclass(kind, LRScheduler):
                self.schedulers.append(thing)
            elif issubclass(kind, torch.amp.GradScaler):
                self.scalers.append(thing)
        inner = {id(child) for module in modules for child in vars(module)["_modules"].values()}
        self.roots = [module for module in modules if id(module) not in inner]


def _holders(wanted: set[int], called: nn.Module | None, roots: list[nn.Module]) -> list[nn.Module]:
    """The fewest modules that together hold all of `wanted`: the one that was called, if it does so alone."""
    if called is not None and wanted <= _ids(called):
        return [called]
    holding = [(ids, root) for root in roots if (ids := _ids(root)) & wanted]
    holding.sort(key=lambda held: (-len(held[0] & wanted), len(held[0])))
    chosen: list[nn.Module] = []
    for ids, root in holding:
        if ids & wanted:
            chosen.append(root)
            wanted = wanted - ids
        if not wanted:
            break
    return chosen


def _of_the_script(called: nn.Module | None, wanted: set[int], own: set[int]) -> nn.Module | None:
    """A library may wrap the model for one call: then it is the one inside that a variable of the script holds.

    `own` are the ids of the modules that the script's variables hold.
    """
    if called is None or id(called) in own:
        return called
    inside = (module for module in called.modules() if id(module) in own and wanted <= _ids(module))
    return next(inside, called)


def _ids(module: nn.Module) -> set[int]:
    return {id(parameter) for parameter in module.parameters()}


def _distinct(modules: list[nn.Module]) -> list[nn.Module]:
    """Each once, and none that is a part of another."""
    unique = list({id(module): module for module in modules}.values())
    inner = {id(part) for module in unique for part in module.modules() if part is not module}
    return [module for module in unique if id(module) not in inner]


def _named_parts(modules: list[nn.Module], named: dict[int, str]) -> dict[str, nn.Module]:
    parts: dict[str, nn.Module] = {}
    for module in modules:
        name = base = named.get(id(module), type(module).__name__)
        number = 2
        while name in parts or hasattr(nn.Module, name):
            name, number = f"{base}_{number}", number + 1
        parts[name] = module
    return parts


def _names(frame: FrameType | None) -> dict[int, str]:
    """The variable names of modules in the running functions; of attributes of objects as well."""
    names: dict[int, str] = {}
    for caller in _frames(frame):
        names = _named_in(caller) | names  # the innermost counts
    return names


def _named_in(caller: FrameType) -> dict[int, str]:
    modules = [(id(value), name) for name, value in _entries(variables(caller)) if isinstance(value, nn.Module)]
    return dict(reversed(modules))  # the first name counts


def _is_installed(caller: FrameType) -> bool:
    """Whether this function belongs to a library and not to the script."""
    return not _INSTALLED.isdisjoint(Path(caller.f_code.co_filename).parts)


def _entries(known: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from known.items()
    holder = known.get("self")
    if holder is not None and not isinstance(holder, nn.Module):
        attributes: Iterable[tuple[str, Any]] = getattr(holder, "__dict__", {}).items()
        yield from islice(attributes, _NAMED_ATTRIBUTES)


def _with_helpers(found: TrainedObjects, live: _LiveObjects) -> TrainedObjects:
    ours = {id(optimizer): optimizer for optimizer in found.optimizers}
    inner = {id(part) for one in live.schedulers for part in vars(one).get("_schedulers", ())}
    schedulers = [s for s in live.schedulers if id(getattr(s, "optimizer", None)) in ours and id(s) not in inner]
    if schedulers:
        found.scheduler = schedulers[0]
        first = schedulers[0].optimizer
        found.optimizers = [first, *(optimizer for optimizer in found.optimizers if optimizer is not first)]
    if len(schedulers) > 1:
        others = len(schedulers) - 1
        found.doubts.append(
            f"{others} more scheduler{'s' * (others > 1)} found: their learning rates are recorded, not expected"
        )
    enabled = [scaler for scaler in live.scalers if scaler.is_enabled()]
    unused = [scaler for scaler in enabled if vars(scaler).get("_scale") is None]
    scalers = unused or enabled  # those of an earlier training have scaled a loss
    found.scaler = scalers[0] if len(scalers) == 1 else None
    if len(scalers) > 1:
        found.doubts.append(f"{len(scalers)} loss scalers found: the loss is recorded as scaled")
    return found
