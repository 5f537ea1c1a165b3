"""The data of one rank: the order of its sampler in one epoch, its dataset, and its first examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from steadyrun.preflight.bench import Bench
from steadyrun.preflight.loader_trials import digest, length, order, torch_loader, twin
from steadyrun.probes.batch_hashes import arrays_of, example_hashes
from steadyrun.signals.missing import NotApplicable

_MOST = 1_000_000  # indices of a rank
_TRIED = 3  # examples by which two datasets are compared


@dataclass(frozen=True)
class LoaderFacts:
    """A loader as one rank sees it."""

    examples: NDArray[np.int64]  # hashes of the examples of the first batches, in order
    first: NDArray[np.int64]  # of these, those of the first batch
    why_not: str = ""  # why it has no order of indices
    sampler: str = ""
    indices: NDArray[np.int64] | None = None  # one epoch
    size: int | None = None  # of the dataset
    dataset: str = ""  # a digest of some of its examples
    splits: bool = False  # the sampler gives each rank a part of the data
    redraws: bool = False  # it draws with replacement
    batch_size: int = 1
    whole: bool = True  # the epoch was read to its end


def loader_facts(bench: Bench, batches: list[Any]) -> LoaderFacts:
    """The facts of this rank's loader, which stays as it was."""
    hashes = [_hashes(batch) for batch in batches]
    examples = np.concatenate(hashes) if hashes else np.zeros(0, np.int64)
    first = hashes[0] if hashes else examples
    try:
        with bench.pristine():
            return _read(bench, examples, first)
    except NotApplicable as why:
        return LoaderFacts(examples, first, str(why))
    except Exception as problem:
        return LoaderFacts(examples, first, f"the sampler raised {type(problem).__name__}: {problem}")


def _read(bench: Bench, examples: NDArray[np.int64], first: NDArray[np.int64]) -> LoaderFacts:
    loader = torch_loader(bench.task.loader)
    sampler = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
    bench.reseed()
    indices = np.asarray(order(twin(sampler), _MOST), np.int64)
    inner = _innermost(loader)
    return LoaderFacts(
        examples,
        first,
        sampler=type(inner).__name__,
        indices=indices,
        size=length(loader.dataset),
        dataset=_dataset_digest(loader.dataset),
        splits=hasattr(inner, "num_replicas") or hasattr(sampler, "num_processes"),
        redraws=bool(getattr(inner, "replacement", False)),
        batch_size=int(getattr(loader, "batch_size", None) or getattr(sampler, "batch_size", None) or 1),
        whole=len(indices) < _MOST,
    )


def _innermost(loader: Any) -> Any:
    """The sampler that chooses examples."""
    sampler = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
    for _ in range(4):
        below = getattr(sampler, "batch_sampler", None) or getattr(sampler, "sampler", None)
        if below is None or hasattr(sampler, "num_replicas"):
            break
        sampler = below
    return sampler


def _dataset_digest(dataset: Any) -> str:
    """A digest of some examples, drawn with the same random numbers on every rank."""
    size = length(dataset)
    if not size:
        return ""
    torch.manual_seed(0)
    np.random.seed(0)
    return " ".join(digest(dataset[index]) for index in sorted({0, size // 2, size - 1})[:_TRIED])


def _hashes(batch: Any) -> NDArray[np.int64]:
    hashes = example_hashes(arrays_of(batch))
    if hashes is None:
        return np.zeros(0, np.int64)
    return np.asarray(hashes.cpu() if isinstance(hashes, torch.Tensor) else hashes, np.int64)
