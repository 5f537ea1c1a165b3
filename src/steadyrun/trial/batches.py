"""The batches of a trial: those to train on, those to measure on, and the parts of a batch."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steadyrun.errors import UsageError
from steadyrun.probes.batch_hashes import arrays_of, batch_hash, example_hashes, is_list_of_batches
from steadyrun.probes.loss_graph import read
from steadyrun.program.containers import named_leaves, rebuilt
from steadyrun.program.task import Task
from steadyrun.trial.curve import Drawn
from steadyrun.workers.job_execution import in_one_line

MEASURED = 8  # batches on which the loss is measured
_QUARTER = 4
_BATCHES, _SHARE = 8, 0.25  # held out: one in so many batches, and at most this fraction of the examples
_MOST_BYTES, _MOST_SECONDS = 2**30, 60.0


@dataclass
class TrialData:
    """The data drawn once for all twins of a seed."""

    training: list[Any]  # in order; a twin that needs more starts over
    held: list[Any]  # from the training loader, never trained on
    seen: list[Any]  # from the batches to train on
    validation: list[Any]  # to measure on
    spare: list[Any]  # from validation, to train on instead of the training data
    drawn: Drawn

    @property
    def measured_on(self) -> str:
        """The split that decides about settings: held-out training examples, else validation, else training batches."""
        return "held" if self.held else "validation" if self.validation else "seen"

    def fingerprint(self) -> str:
        """A text that is equal for the same batches in the same order."""
        return str([_hash(batch) for batch in (*self.training, *self.held, *self.validation)])


def draw(task: Task, steps: int, *, cut: bool = True) -> TrialData:
    """Read as many batches as the twins train on, and hold out the examples of a few.

    Without `cut`, every batch with a held-out example is left out whole.
    """
    if task.loader is None:
        raise UsageError("the task has no batches; set loader=… in the steadyrun.Task")
    drawn = _drawn(task.loader, steps, "loader")
    if not drawn:
        raise UsageError("the task's loader is empty; give it at least one batch")
    training, held = _kept_back(drawn, cut)
    validation = [] if task.val_loader is None else _drawn(task.val_loader, 8 * MEASURED, "val_loader")
    measured, spare = _split(validation)
    return TrialData(training, held, training[:MEASURED], measured, spare, _counted(drawn, task.loader))


def _drawn(loader: Any, most: int, called: str) -> list[Any]:
    """At most `most` batches, fewer if they are large or slow."""
    drawn: list[Any] = []
    size, began = 0, time.monotonic()
    try:
        for batch in itertools.islice(iter(loader), most):
            drawn.append(batch)
            size += sum(array.nbytes for array in arrays_of(batch))
            if size > _MOST_BYTES or time.monotonic() - began > _MOST_SECONDS:
                break
    except Exception as problem:
        raise UsageError(f"batch {len(drawn)} of the task's {called} raised {in_one_line(problem)}") from problem
    return drawn


def _hash(batch: Any) -> Any:
    arrays = arrays_of(batch if not is_list_of_batches(batch) else batch[0])
    examples = example_hashes(arrays) if arrays else None
    return None if examples is None else batch_hash(examples).tolist()


def _counted(drawn: list[Any], loader: Any) -> Drawn:
    hashes = [str(known) if (known := _hash(batch)) is not None else str(index) for index, batch in enumerate(drawn)]
    examples = [example for batch in drawn for single in _micro_batches(batch) for example in _examples(single)]
    sized: Any = getattr(loader, "dataset", None)
    whole = len(sized) if hasattr(sized, "__len__") else None
    return Drawn(len(drawn), len(set(hashes)), len(examples), len(set(examples)), whole)


def _micro_batches(batch: Any) -> list[Any]:
    return list(batch) if is_list_of_batches(batch) else [batch]


def _kept_back(drawn: list[Any], cut: bool) -> tuple[list[Any], list[Any]]:
    """The batches without held-out examples, and the held-out batches; none if too little is left to train on."""
    singles = [batch[0] if is_list_of_batches(batch) else batch for batch in drawn]
    everything = {example for batch in singles for example in _examples(batch)}
    each = max(1, len(_examples(singles[0])))
    held = singles[: min(MEASURED, len(drawn) // _BATCHES, int(_SHARE * len(everything) / each))]
    kept = {example for batch in held for example in _examples(batch)}
    if not kept:
        return drawn, []
    left = [(batch, _without(batch, kept)) for batch in drawn]
    training = [rest for batch, rest in left if rest is not None and (cut or rest is batch)]
    return (training, held) if len(training) >= len(drawn) / 2 else (drawn, [])


def _without(batch: Any, kept: set[Any]) -> Any | None:
    """A batch without these examples; None if less than half is left or the batch cannot be split."""
    if is_list_of_batches(batch):
        parts = [_without(part, kept) for part in batch]
        return None if any(part is None for part in parts) else type(batch)(parts)
    examples = _examples(batch)
    rows = [row for row, example in enumerate(examples) if example not in kept]
    if len(rows) == len(examples):
        return batch
    if len(rows) < len(examples) / 2 or rows_of(batch) != len(examples):  # the rest may be too small to train on
        return None
    return rebuilt(batch, lambda leaf: leaf[rows] if isinstance(leaf, Tensor) and leaf.dim() else leaf)


def _examples(batch: Any) -> list[Any]:
    arrays = arrays_of(batch)
    hashes = example_hashes(arrays) if arrays else None
    return [] if hashes is None else [str(each) for each in hashes.tolist()]


def _split(validation: list[Any]) -> tuple[list[Any], list[Any]]:
    """Batches to measure on, and others to train on; of few batches, a quarter of each to measure on."""
    if len(validation) >= 2 * MEASURED:
        return validation[:MEASURED], validation[MEASURED:]
    rows = [rows_of(batch) for batch in validation]
    if validation and all(count is not None and count >= _QUARTER for count in rows):
        cuts = [(batch, (count or 0) // _QUARTER) for batch, count in zip(validation, rows, strict=True)]
        return [_rows(b, slice(0, cut)) for b, cut in cuts], [_rows(b, slice(cut, None)) for b, cut in cuts]
    middle = (len(validation) + 1) // 2
    return (validation[:middle], validation[middle:]) if len(validation) > 1 else (validation, [])


# -- parts of a batch ------------------------------------------------------------------------------


def rows_of(batch: Any) -> int | None:
    """The number of examples: the first dimension that all tensors share; None if they share none."""
    sizes = {leaf.shape[0] for _, leaf in named_leaves(batch) if isinstance(leaf, Tensor) and leaf.dim()}
    return sizes.pop() if len(sizes) == 1 else None


def halved(batch: Any) -> tuple[Any, Any] | None:
    """The two halves of a batch; None if it cannot be split."""
    rows = rows_of(batch)
    if rows is None or rows < 2:
        return None
    middle = rows // 2
    return _rows(batch, slice(0, middle)), _rows(batch, slice(middle, None))


def joined(one: Any, other: Any) -> Any | None:
    """Two batches as one; None if their tensors do not fit together."""
    others = dict(named_leaves(other))
    mine = dict(named_leaves(one))
    fits = mine.keys() == others.keys() and all(
        not isinstance(leaf, Tensor)
        or (isinstance(others[path], Tensor) and leaf.dim() > 0 and leaf.shape[1:] == others[path].shape[1:])
        for path, leaf in mine.items()
    )
    if not fits or rows_of(one) is None or rows_of(other) is None:
        return None
    return at_paths(one, {path: torch.cat([leaf, others[path]]) for path, leaf in mine.items() if _is_tensor(leaf)})


def at_paths(batch: Any, leaves: dict[str, Tensor]) -> Any:
    """The batch with other tensors at these paths."""
    paths = iter([path for path, _ in named_leaves(batch)])
    return rebuilt(batch, lambda leaf: leaves.get(next(paths), leaf))


def _rows(batch: Any, rows: slice) -> Any:
    return rebuilt(batch, lambda leaf: leaf[rows] if isinstance(leaf, Tensor) and leaf.dim() else leaf)


def _is_tensor(leaf: object) -> bool:
    return isinstance(leaf, Tensor)


@dataclass(frozen=True)
class BatchParts:
    """Which tensors of a batch are targets and which are inputs, by their paths."""

    targets: tuple[str, ...]
    inputs: tuple[str, ...]


def parts_of(task: Task, batch: Any, loss: Callable[[Any], Tensor]) -> BatchParts:
    """The targets, which are tensors of the batch that the loss compares with, and the inputs, which are the rest.

    A tensor that is both (a language model's tokens) is an input.
    """
    leaves = {path: leaf for path, leaf in named_leaves(batch) if isinstance(leaf, Tensor) and leaf.dim()}
    outputs: list[Tensor] = []
    handle = task.model.register_forward_hook(lambda _module, _args, output: outputs.extend(_tensors(output)))
    try:
        graph = read(loss(batch), outputs)
    finally:
        handle.remove()
    compared = [labels.targets for labels in graph.labels] + [pair.targets for pair in graph.compared]
    targets = tuple(path for path, leaf in leaves.items() if any(_same_numbers(leaf, each) for each in compared))
    return BatchParts(targets, tuple(path for path in leaves if path not in targets))


def _tensors(output: Any) -> Iterator[Tensor]:
    return (leaf for _, leaf in named_leaves(output) if isinstance(leaf, Tensor))


def _same_numbers(leaf: Tensor, compared: Tensor) -> bool:
    """Whether two tensors have the same values, in any shape."""
    if leaf.numel() != compared.numel() or leaf.numel() == 0:
        return False
    mine, theirs = leaf.detach().double().flatten(), compared.detach().double().flatten().to(leaf.device)
    return bool(torch.allclose(mine, theirs, rtol=1e-4, atol=1e-6))
