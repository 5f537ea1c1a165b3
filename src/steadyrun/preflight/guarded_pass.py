"""A forward pass that checks every embedding lookup and every class target before use.

On an accelerator an id beyond its table ends the process: the pass stops before that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from steadyrun.preflight.batch_arrays import Integers
from steadyrun.probes.description import is_compiled
from steadyrun.program.model_parts import clean
from steadyrun.program.torch_compat import TorchDispatchMode
from steadyrun.signals.missing import MissingSignal

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench

_FIRST = 4  # batches tried until one can run
_MEAN = 1
_EMBEDDINGS = ("embedding", "_embedding_bag", "_embedding_bag_forward_only", "embedding_bag")
_LOSSES = ("nll_loss_forward", "nll_loss2d_forward")


class OutOfRange(Exception):  # noqa: N818  an answer in the making
    """An id or a label that the next operation cannot accept."""

    def __init__(self, kind: str, value: int, size: int, name: str) -> None:
        super().__init__(f"{kind} {value} of {size}")
        self.kind, self.value, self.size, self.name = kind, value, size, name


@dataclass(frozen=True)
class Lookup:
    """Ids looked up in an embedding."""

    table: str
    rows: int
    ids: Integers


@dataclass(frozen=True)
class Targets:
    """The targets of a cross-entropy over classes."""

    values: Integers
    classes: int
    ignore_index: int
    mean: bool

    @property
    def none_left(self) -> bool:
        return bool((self.values == self.ignore_index).all())


@dataclass
class GuardedPass:
    """The lookups and targets of one pass, up to its first problem."""

    lookups: list[Lookup] = field(default_factory=list)
    targets: list[Targets] = field(default_factory=list)
    loss: float | None = None
    problem: OutOfRange | None = None


def guarded_pass(bench: Bench, batch: Any) -> GuardedPass:
    """Run one guarded forward pass. A part that stays compiled is opaque."""
    guarded = GuardedPass()
    if is_compiled(bench.task.model) and not hasattr(torch.compiler, "set_stance"):
        return guarded
    with bench.pristine(), torch.no_grad(), _looking(bench), _Guard(guarded, bench):
        bench.reseed()
        bench.modes(True)
        try:
            guarded.loss = float(bench.loss(batch).detach())
        except OutOfRange as problem:
            guarded.problem = problem
        except MissingSignal:
            pass
    return guarded


@contextmanager
def _looking(bench: Bench) -> Iterator[None]:
    bench.memo["looking"] = True
    try:
        yield
    finally:
        del bench.memo["looking"]


@contextmanager
def surviving(bench: Bench) -> Iterator[None]:
    """Refuse a batch with an id or label out of range, which would end the process on an accelerator."""
    if bench.device.type == "cpu" or "looking" in bench.memo:
        yield
        return
    try:
        with _Guard(GuardedPass(), bench):
            yield
    except OutOfRange as problem:
        why = f"a batch has {problem.kind} {problem.value}, out of range for {problem.name} of size {problem.size}"
        raise MissingSignal("batches", why, "fix the ids and labels that P1.1 and P1.2 report first") from problem


def guarded_pass_at(bench: Bench, index: int) -> GuardedPass:
    """The guarded pass of one batch, computed once; a batch that cannot run is left out from then on."""
    if ("guarded pass", index) not in bench.memo:
        fresh = bench.memo["guarded pass", index] = guarded_pass(bench, bench.batches[index])
        if fresh.problem is not None:
            bench.broken.add(index)
    guarded: GuardedPass = bench.memo["guarded pass", index]
    return guarded


def first_guarded_passes(bench: Bench) -> list[GuardedPass]:
    """The first batches up to one that can run."""
    passes: list[GuardedPass] = []
    for index in range(min(len(bench.batches), _FIRST)):
        passes.append(guarded_pass_at(bench, index))
        if passes[-1].problem is None:
            break
    return passes


class _Guard(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, guarded: GuardedPass, bench: Bench) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._guarded = guarded
        self._names = {_address(parameter): clean(name) for name, parameter in bench.model.named_parameters()}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in _EMBEDDINGS:
            self._lookup(args[0], args[1])
        elif name in _LOSSES:
            self._compare(args)
        return func(*args, **(kwargs or {}))

    def _lookup(self, table: Tensor, ids: Tensor) -> None:
        if not ids.numel() or ids.device.type == "meta":
            return
        rows = int(table.shape[0])
        lookup = Lookup(self._names.get(_address(table), "a table"), rows, ids.detach().cpu().long().numpy().copy())
        self._guarded.lookups.append(lookup)
        for value in (int(lookup.ids.min()), int(lookup.ids.max())):
            if not 0 <= value < rows:
                raise OutOfRange("id", value, rows, lookup.table)

    def _compare(self, args: Any) -> None:
        scores, targets, _, reduction, ignored = args[:5]
        if not targets.numel() or targets.device.type == "meta" or targets.is_floating_point():
            return
        classes = int(scores.shape[1] if scores.dim() > 1 else scores.shape[0])
        values = targets.detach().cpu().long().numpy().copy()
        self._guarded.targets.append(Targets(values, classes, int(ignored), int(reduction) == _MEAN))
        counted = values[values != int(ignored)]
        for value in (int(counted.min()), int(counted.max())) if counted.size else ():
            if not 0 <= value < classes:
                raise OutOfRange("label", value, classes, "the scores")


def _address(tensor: Tensor) -> int:
    try:
        return tensor.data_ptr()
    except RuntimeError:  # a tensor without memory of its own
        return id(tensor)
