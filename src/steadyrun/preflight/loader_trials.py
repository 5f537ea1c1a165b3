"""torch's loaders: their datasets and samplers, run without touching the originals."""

from __future__ import annotations

import copy
import hashlib
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, Sampler

from steadyrun.preflight.batch_arrays import as_numpy
from steadyrun.signals.missing import MissingSignal, NotApplicable

_LONGEST = 2_000_000  # indices: a sampler may be endless
_SECONDS = 30.0  # timeout for an item of a worker


def torch_loader(loader: Any) -> DataLoader[Any]:
    """A DataLoader over an indexed dataset; raises `NotApplicable` for anything else."""
    if not isinstance(loader, DataLoader):
        raise NotApplicable("the batches do not come from a torch DataLoader")
    if isinstance(loader.dataset, IterableDataset):
        raise NotApplicable("the dataset is a stream (IterableDataset), whose examples have no index")
    return loader


def streams(loader: Any) -> bool:
    """Whether it is a DataLoader over a stream."""
    return isinstance(loader, DataLoader) and isinstance(loader.dataset, IterableDataset)


def drawn_by_two_workers(loader: DataLoader[Any], count: int) -> tuple[list[str], list[str]]:
    """Digests of one item fetched `count` times by each of two workers, started as the loader starts its own."""
    double: DataLoader[Any] = DataLoader(
        loader.dataset,  # the original, because a worker_init_fn may look for it
        sampler=[first_key(loader)] * (2 * count),
        batch_size=None,
        collate_fn=digest,
        num_workers=2,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=loader.generator,
        timeout=_SECONDS,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reading = iter(double)
        try:
            digests = [str(drawn) for drawn in reading]
        except Exception as problem:
            why = f"two workers could not fetch an item: {type(problem).__name__}: {str(problem)[:200]}"
            raise MissingSignal("items of the dataset", why, "make loader.dataset[0] work in a worker") from problem
        finally:
            end = getattr(reading, "_shutdown_workers", None)
            if callable(end):
                end()
    return digests[::2], digests[1::2]


def length(container: Any) -> int | None:
    """The length, or None if it is unknown."""
    try:
        return len(container)
    except (TypeError, NotImplementedError):
        return None


def first_key(loader: DataLoader[Any]) -> Any:
    """The key of an item that the loader would fetch."""
    if (length(loader.dataset) or 0) > _LONGEST:
        return 0
    try:
        first = next(iter(twin(loader.batch_sampler if loader.batch_sampler is not None else loader.sampler)))
        return first[0] if loader.batch_sampler is not None else first
    except Exception:
        return 0


def digest(item: Any) -> str:
    """A digest of an item's whole content."""
    sha = hashlib.sha256()
    for part in _parts(item):
        sha.update(part)
    return sha.hexdigest()


def _parts(item: Any) -> Iterator[bytes]:
    if isinstance(item, Tensor | np.ndarray):
        array = as_numpy(item)
        yield b"?" if array is None else array.tobytes()
    elif isinstance(item, Mapping):
        for key in item:
            yield repr(key).encode()
            yield from _parts(item[key])
    elif isinstance(item, str | bytes | int | float | complex) or item is None:
        yield repr(item).encode()
    elif isinstance(item, Sequence):
        for part in item:
            yield from _parts(part)
    elif callable(getattr(item, "tobytes", None)):  # an image
        yield item.tobytes()
    elif hasattr(item, "__dict__"):
        yield from _parts(vars(item))
    else:
        yield type(item).__name__.encode()


def order(sampler: Any, most: int) -> list[int]:
    """The first indices of a sampler or batch sampler. Reads it to its end, because it may count epochs there."""
    indices: list[int] = []
    for drawn in islice(iter(sampler), _LONGEST):
        if len(indices) < most:
            indices += [int(index) for index in drawn] if isinstance(drawn, list | tuple) else [int(drawn)]
    return indices[:most]


def twin(sampler: Any) -> Any:
    """A copy with its own random generators; it shares the data."""
    double = copy.copy(sampler)
    for name, attribute in vars(sampler).items():
        if isinstance(attribute, torch.Generator):
            own = torch.Generator(attribute.device)
            own.set_state(attribute.get_state())
            setattr(double, name, own)
        elif isinstance(attribute, np.random.Generator | np.random.RandomState | random.Random):
            setattr(double, name, copy.deepcopy(attribute))
        elif isinstance(attribute, Sampler) or (hasattr(attribute, "__iter__") and hasattr(attribute, "set_epoch")):
            setattr(double, name, twin(attribute))
        elif isinstance(attribute, list | dict | set | np.ndarray | Tensor) and len(attribute) < 10**7:
            setattr(double, name, copy.copy(attribute) if not isinstance(attribute, Tensor) else attribute.clone())
    return double


def base_of(dataset: Any) -> Any:
    """The dataset below subsets and splits."""
    for _ in range(8):
        below = getattr(dataset, "dataset", None)
        if below is None or not hasattr(below, "__getitem__"):
            break
        dataset = below
    return dataset
