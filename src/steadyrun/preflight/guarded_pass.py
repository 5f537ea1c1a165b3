"""One forward pass in which every lookup and every class target is checked before it is used.

On an accelerator an id beyond its table ends the process: here the pass is left before it happens.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from steadyrun.preflight.batch_arrays import Integers
from steadyrun.probes.description import is_compiled
from steadyrun.program.model_parts import clean
from steadyrun.signals.missing import MissingSignal

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench

_FIRST = 4  # batches that are looked at until one can be run
_MEAN = 1
_EMBEDDINGS = ("embedding", "_embedding_bag", "_embedding_bag_forward_only", "embedding_bag")
_LOSSES = ("nll_loss_forward", "nll_loss2d_forward")


class OutOfRange(Exception):  # noqa: N818  an answer in the making
    """Something that the next operation could not take."""

    def __init__(self, kind: str, value: int, size: int, name: str) -> None:
        super().__init__(f"{kind} {value} of {size}")
        self.kind, self.value, self.size, self.name = kind, value, size, name


@dataclass(frozen=True)
class Lookup:
    """Ids that went through an embedding."""

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
    """What one pass looked up and compared, as far as it came."""

    lookups: list[Lookup] = field(default_factory=list)
    targets: list[Targets] = field(default_factory=list)
    loss: float | None = None
    problem: OutOfRange | None = None


def look(bench: Bench, batch: Any) -> GuardedPass:
    """One guarded forward pass. What stays compiled is opaque: nothing is seen in it."""
    found = GuardedPass()
    if is_compiled(bench.task.model) and not hasattr(torch.compiler, "set_stance"):
        return found
    with bench.pristine(), torch.no_grad(), _looking(bench), _Guard(found, bench):
        bench.reseed()
        bench.modes(True)
        try:
            found.loss = float(bench.loss(batch).detach())
        except OutOfRange as problem:
            found.problem = problem
        except MissingSignal:
            pass
    return found


@contextmanager
def _looking(bench: Bench) -> Iterator[None]:
    bench.memo["looking"] = True
    try:
        yield
    finally:
        del bench.memo["looking"]


@contextmanager
def surviving(bench: Bench) -> Iterator[None]:
    """An accelerator that is asked for a row which is not there is lost to the process: the batch is refused before."""
    if bench.device.type == "cpu" or "looking" in bench.memo:
        yield
        return
    try:
        with _Guard(GuardedPass(), bench):
            yield
    except OutOfRange as problem:
        why = f"a batch has an {problem.kind} {problem.value} where there are {problem.size}"
        raise MissingSignal("batches", why, "mend what P1.1 and P1.2 say of the batches first") from problem


def look_at(bench: Bench, place: int) -> GuardedPass:
    """A look at one batch, made once; where it cannot be run it is left out from then on."""
    if ("look", place) not in bench.memo:
        found = bench.memo["look", place] = look(bench, bench.batches[place])
        if found.problem is not None:
            bench.broken.add(place)
    seen: GuardedPass = bench.memo["look", place]
    return seen


def first_looks(bench: Bench) -> list[GuardedPass]:
    """The first batches up to one that can be run."""
    found: list[GuardedPass] = []
    for place in range(min(len(bench.batches), _FIRST)):
        found.append(look_at(bench, place))
        if found[-1].problem is None:
            break
    return found


class _Guard(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, found: GuardedPass, bench: Bench) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._found = found
        self._names = {_address(held): clean(name) for name, held in bench.model.named_parameters()}

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
        held = Lookup(self._names.get(_address(table), "a table"), rows, ids.detach().cpu().long().numpy().copy())
        self._found.lookups.append(held)
        for value in (int(held.ids.min()), int(held.ids.max())):
            if not 0 <= value < rows:
                raise OutOfRange("id", value, rows, held.table)

    def _compare(self, args: Any) -> None:
        scores, targets, _, reduction, ignored = args[:5]
        if not targets.numel() or targets.device.type == "meta" or targets.is_floating_point():
            return
        classes = int(scores.shape[1] if scores.dim() > 1 else scores.shape[0])
        values = targets.detach().cpu().long().numpy().copy()
        self._found.targets.append(Targets(values, classes, int(ignored), int(reduction) == _MEAN))
        kept = values[values != int(ignored)]
        for value in (int(kept.min()), int(kept.max())) if kept.size else ():
            if not 0 <= value < classes:
                raise OutOfRange("label", value, classes, "the scores")


def _address(tensor: Tensor) -> int:
    try:
        return tensor.data_ptr()
    except RuntimeError:  # a tensor without memory of its own
        return id(tensor)
