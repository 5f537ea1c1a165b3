"""The data loader of a training loop, as far as it can be seen: given to `watch`, or a variable of the calling loop."""

from __future__ import annotations

import sys
from itertools import islice
from types import FrameType
from typing import Any

from steadyrun.program.frames import callers, variables

_FRAMES = 8


def describe_loader(loader: Any) -> dict[str, Any] | None:
    """What a torch DataLoader says of itself; None for anything else."""
    utils = sys.modules.get("torch.utils.data")
    if utils is None or not isinstance(loader, utils.DataLoader):
        return None
    sampler = getattr(loader, "sampler", None)
    shuffles = isinstance(sampler, utils.RandomSampler) or bool(getattr(sampler, "shuffle", False))
    try:
        batches: int | None = len(loader)
    except TypeError:
        batches = None
    return {
        "batches": batches,
        "sampler": type(sampler).__name__,
        "shuffles": shuffles,
        "workers": int(loader.num_workers),
        "batch_size": loader.batch_size,
    }


def loaders_near(frame: FrameType | None) -> list[dict[str, Any]]:
    """The data loaders among the variables of the calling functions, each once; nothing is called, only looked at."""
    loaders: dict[int, dict[str, Any]] = {}
    for caller in islice(callers(frame), _FRAMES):
        for value in variables(caller).values():
            described = None if id(value) in loaders else describe_loader(value)
            if described is not None:
                loaders[id(value)] = described
    return list(loaders.values())
