"""The data loaders of a training loop, as far as they can be seen: variables of the functions that call `run.step`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from types import FrameType
from typing import Any

from steadyrun.program.frames import callers, variables

_FRAMES = 16  # a hook of torch may stand between the loop and us
_WRAPPERS = 4  # samplers inside of samplers
_NOT_TRAINING = ("val", "test", "eval", "dev")  # in the name of a variable


def loaders_near(frame: FrameType | None) -> list[tuple[str, Any]]:
    """The data loaders among the variables of the calling functions, each once, with the names of the variables."""
    loaders: dict[int, tuple[str, Any]] = {}
    for caller in islice(callers(frame), _FRAMES):
        for name, value in variables(caller).items():
            if id(value) not in loaders and _is_loader(value):
                loaders[id(value)] = (name, value)
    return list(loaders.values())


def training_first(loaders: list[tuple[str, Any]]) -> list[Any]:
    """The loaders; those whose names show that they are not for training come last."""
    return [loader for _, loader in sorted(loaders, key=lambda found: _is_for_validation(found[0]))]


def describe_loader(loader: Any) -> dict[str, Any] | None:
    """Describe a torch DataLoader; None for anything else."""
    if not _is_loader(loader):
        return None
    utils = sys.modules["torch.utils.data"]
    sampler, size = getattr(loader, "sampler", None), loader.batch_size
    if size is None and getattr(loader, "batch_sampler", None) is not None:
        *_, sampler = _samplers(loader)  # torch puts a SequentialSampler beside a batch sampler, which nobody asks
        size = _attribute(loader, "batch_size")
    shuffles = isinstance(sampler, utils.RandomSampler) or bool(getattr(sampler, "shuffle", False))
    return {
        "batches": _length(loader),
        "sampler": type(sampler).__name__,
        "shuffles": shuffles,
        "workers": int(loader.num_workers),
        "batch_size": size,
    }


def describe_part(loader: Any) -> dict[str, Any]:
    """The fields of the event `loader`: which part of the data this rank gets."""
    return {
        **(describe_loader(loader) or {}),
        "num_replicas": _attribute(loader, "num_replicas", "num_processes"),
        "rank": _attribute(loader, "rank", "process_index"),
        "seed": _attribute(loader, "seed", "initial_seed"),
        "epoch": _attribute(loader, "epoch"),
        "drop_last": bool(loader.drop_last),
        "dataset_size": _length(getattr(loader, "dataset", None)),
    }


def _is_loader(value: Any) -> bool:
    utils = sys.modules.get("torch.utils.data")
    return utils is not None and isinstance(value, utils.DataLoader)


def _is_for_validation(name: str) -> bool:
    return any(word in name.lower() for word in _NOT_TRAINING)


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except (TypeError, NotImplementedError):  # an iterable without a length
        return None


def _attribute(loader: Any, *names: str) -> int | None:
    """The first whole number of one of these names that a sampler of the loader has."""
    for sampler in _samplers(loader):
        for name in names:
            if isinstance(value := getattr(sampler, name, None), int):
                return int(value)
    return None


def _samplers(loader: Any) -> Iterator[Any]:
    """The samplers of a loader, those inside of others included."""
    yield (outer := getattr(loader, "sampler", None))
    batches = getattr(loader, "batch_sampler", None)
    for _ in range(_WRAPPERS):
        if batches is None or batches is outer:
            return
        yield batches
        batches = getattr(batches, "batch_sampler", None) or getattr(batches, "sampler", None)
