"""Changes of the data, which show whether the program can learn and whether its data are consistent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from steadyrun.probes.batch_hashes import is_list_of_batches
from steadyrun.program.containers import named_leaves
from steadyrun.trial.batches import at_paths, rows_of
from steadyrun.trial.factor import INPUTS, LEARNS, PREPARATION, TARGETS, Factor, NotVaried
from steadyrun.trial.twin import Twin


def data_changes(twin: Twin) -> Iterator[Factor | NotVaried]:
    yield Factor("one-batch", LEARNS, "one batch repeated", batches=lambda t: t.data.training[:1])
    parts = twin.parts
    if parts.targets:
        yield Factor("targets-shuffled", TARGETS, "targets shuffled among the examples", batches=_shuffled)
    else:
        yield NotVaried(
            "targets-shuffled",
            TARGETS,
            "shuffled targets",
            "no tensor of the batch is only a target of the loss",
        )
    if parts.targets and parts.inputs:
        yield Factor("inputs-noise", INPUTS, "inputs replaced by noise of the same statistics", batches=_noise)
    else:
        yield NotVaried("inputs-noise", INPUTS, "noise as inputs", "no tensor of the batch is only an input")
    if twin.data.spare:
        yield Factor("validation-data", PREPARATION, "trained on part of the validation data", batches=_spare)
        yield Factor("as-few-data", PREPARATION, "trained on equally few training data", batches=_as_few)
    else:
        yield NotVaried(
            "validation-data",
            PREPARATION,
            "training on validation data",
            "the task has no validation batches to train on",
        )


def _changed(twin: Twin, change: Callable[[Any, torch.Generator], Any]) -> list[Any]:
    generator = torch.Generator().manual_seed(1)
    return [
        [change(part, generator) for part in batch]
        if twin.accumulation > 1 and is_list_of_batches(batch)
        else change(batch, generator)
        for batch in twin.data.training
    ]


def _shuffled(twin: Twin) -> list[Any]:
    """Targets shuffled by one permutation per batch."""

    def change(batch: Any, generator: torch.Generator) -> Any:
        leaves = dict(named_leaves(batch))
        found = [path for path in twin.parts.targets if path in leaves]
        rows = leaves[found[0]].shape[0] if found else 0
        order = torch.randperm(rows, generator=generator)
        return at_paths(batch, {path: leaves[path][order.to(leaves[path].device)] for path in found})

    return _changed(twin, change)


def _noise(twin: Twin) -> list[Any]:
    def change(batch: Any, generator: torch.Generator) -> Any:
        leaves = dict(named_leaves(batch))
        return at_paths(
            batch, {path: _noise_like(leaves[path], generator) for path in twin.parts.inputs if path in leaves}
        )

    return _changed(twin, change)


def _noise_like(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Integers in another order; for floats, normal noise with their mean and standard deviation."""
    if not tensor.is_floating_point():
        order = torch.randperm(tensor.numel(), generator=generator).to(tensor.device)
        return tensor.flatten()[order].reshape(tensor.shape)
    noise = torch.randn(tensor.shape, generator=generator).to(tensor)
    spread = tensor.std(dim=0, keepdim=True, unbiased=False) if tensor.shape[0] > 1 else tensor.std(unbiased=False)
    return tensor.mean(dim=0, keepdim=True) + noise * spread


def _spare(twin: Twin) -> list[Any]:
    return _in_form(twin, twin.data.spare)


def _as_few(twin: Twin) -> list[Any]:
    """As many training examples as the spare validation data has."""
    wanted = sum(rows_of(batch) or 1 for batch in twin.data.spare)
    chosen, count = [], 0
    for batch in twin.data.training:
        chosen.append(batch)
        count += rows_of(twin._single(batch)) or 1
        if count >= wanted:
            break
    return chosen


def _in_form(twin: Twin, batches: list[Any]) -> list[Any]:
    """Validation batches in the form of the program's step: lists of micro-batches if it accumulates."""
    if twin.accumulation == 1 or not is_list_of_batches(twin.data.training[0]):
        return list(batches)
    count = twin.accumulation
    return [[batches[(index + offset) % len(batches)] for offset in range(count)] for index in range(len(batches))]
