"""Rows on their way to the store: work on them is done for many at a time.

On an accelerator the values of waiting rows are joined at a flush, copied to the host asynchronously, and
handed to the store when the copy has arrived: no step waits for the device. On the CPU, small work on a row
(a hash of its batch) waits until some dozens are together: in a loop of its own it costs a fifth of what it
costs between two training steps, whose data has pushed everything else out of the caches. Arrays of JAX are computed in
the background on every device: their rows wait until they are there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from steadyrun.probes.scalars import is_jax_array

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    _Kind = tuple[torch.device, torch.dtype]

_TOGETHER = 32  # rows: looking at their batches has a fixed cost of 0.4 ms, and waiting rows are collected as garbage

Values = dict[str, float | None]
HostArray = npt.NDArray[Any]  # what was measured, in whatever type of number
Unpack = Callable[[HostArray], Values]
Report = Callable[[str, Exception], None]


@dataclass(slots=True)
class ProbeRow:
    """A row of a table: what is known now, and tensors whose values come later.

    Rows wait for each other, so each holds as few lists, tuples and objects as can be: Python's garbage collector goes
    through all that wait, and after some thousands of them through everything in the process, which takes 0.2 s.
    """

    table: str
    step: int
    at: float
    values: Values = field(default_factory=dict)
    late: tuple[tuple[Tensor, Unpack], ...] = ()
    coming: dict[str, Any] = field(default_factory=dict)  # arrays of JAX
    work: tuple[tuple[Any, ...], ...] = ()  # functions of the row, and their further arguments
    shown: bool = False  # to the monitor and to capture

    def put(self, name: str, value: float | Tensor | None) -> None:
        """Set one value, now or when its tensor arrives; None is missing and leaves no trace."""
        if value is None:
            return
        if isinstance(value, float | int):
            self.values[name] = value
        elif is_jax_array(value):
            self.coming[name] = value
        elif value.device.type == "cpu":
            self.values[name] = float(value.item())
        else:
            self.late += ((value, lambda array: {name: float(array[0])}),)

    def put_many(self, tensor: Tensor, unpack: Unpack) -> None:
        """Set several values from one tensor."""
        if tensor.device.type == "cpu":
            self.values.update(unpack(_host(tensor.detach().flatten())))
        else:
            self.late += ((tensor.detach(), unpack),)

    def do_later(self, action: Callable[..., None], *arguments: object) -> None:
        """Call `action` with this row and `arguments` when its tensors have arrived."""
        self.work += ((action, *arguments),)

    @property
    def arrived(self) -> bool:
        """Whether no array of JAX is still being computed."""
        return all(array.is_ready() for array in self.coming.values())

    def resolve(self, arrays: list[HostArray], report: Report) -> None:
        """Do what was left to do; what fails is reported and the rest of the row stands."""
        try:
            for (_, unpack), array in zip(self.late, arrays, strict=True):
                self.values.update(unpack(array))
            for name, array in self.coming.items():
                self.values[name] = float(np.asarray(array).reshape(()))
            while self.work:  # an action may leave another one
                (action, *arguments), *rest = self.work
                self.work = tuple(rest)
                action(self, *arguments)
        except Exception as problem:
            report(f"part of table {self.table}", problem)
        self.late, self.work, self.coming = (), (), {}


class PendingRows:
    """The queue of rows on their way from the accelerator to `sink`."""

    def __init__(self, sink: Callable[[ProbeRow], None], report: Report) -> None:
        self._sink = sink
        self._report = report
        self._waiting: list[ProbeRow] = []
        self._late = False
        self._moving: _Move | None = None

    def add(self, row: ProbeRow) -> None:
        self._waiting.append(row)
        self._late = self._late or bool(row.late)
        if len(self._waiting) >= _TOGETHER and not self._late and self._moving is None:
            self._deliver_waiting()

    def start(self) -> None:
        """Begin to move what is waiting, unless a move is still under way."""
        if self._moving is not None:
            return
        if self._late:
            rows, self._waiting, self._late = self._waiting, [], False
            try:
                self._moving = _Move(rows)
            except Exception:  # one tensor that cannot be moved must not hold up all others
                self._deliver_one_by_one(rows)
        else:
            self._deliver_waiting()

    def collect(self, *, wait: bool = False) -> None:
        """Hand over what has arrived; with `wait`, everything."""
        while self._moving is not None and (wait or self._moving.arrived()):
            moved, self._moving = self._moving, None
            for row, arrays in moved.rows():
                self._deliver(row, arrays)
            if wait:
                self.start()

    def drain(self) -> None:
        """Hand over every row, waiting for the device."""
        self.start()
        self.collect(wait=True)
        self.start()
        self.collect(wait=True)
        self._deliver_waiting(wait=True)

    def _deliver_waiting(self, *, wait: bool = False) -> None:
        """Hand over the rows without a tensor to move, in order, up to the first that is still being computed."""
        rows, self._waiting = self._waiting, []
        for index, row in enumerate(rows):
            if not wait and not row.arrived:
                self._waiting = rows[index:]
                return
            self._deliver(row, [])

    def _deliver_one_by_one(self, rows: list[ProbeRow]) -> None:
        for row in rows:
            try:
                arrays = _Move([row]).rows()[0][1]
            except Exception as problem:
                self._report(f"part of table {row.table}", problem)
                row.late, arrays = (), []
            self._deliver(row, arrays)

    def _deliver(self, row: ProbeRow, arrays: list[HostArray]) -> None:
        row.resolve(arrays, self._report)
        self._sink(row)


class _Move:
    """One joint copy of many small tensors to the host."""

    def __init__(self, rows: list[ProbeRow]) -> None:
        import torch

        self._rows = rows
        groups: dict[_Kind, list[Tensor]] = {}
        self._slices: list[list[tuple[_Kind, int, int]]] = []
        sizes: dict[_Kind, int] = {}
        for row in rows:
            slices = []
            for tensor, _ in row.late:
                key = (tensor.device, tensor.dtype)
                start = sizes.get(key, 0)
                sizes[key] = start + tensor.numel()
                groups.setdefault(key, []).append(tensor.reshape(-1))
                slices.append((key, start, sizes[key]))
            self._slices.append(slices)
        self._copies = {key: _to_host(torch.cat(tensors)) for key, tensors in groups.items()}
        self._events = []
        for device in {key[0] for key in groups if key[0].type == "cuda"}:
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(device))
            self._events.append(event)

    def arrived(self) -> bool:
        return all(event.query() for event in self._events)  # type: ignore[no-untyped-call]

    def rows(self) -> list[tuple[ProbeRow, list[HostArray]]]:
        for event in self._events:
            if not event.query():  # type: ignore[no-untyped-call]
                event.synchronize()
        arrays = {key: _host(copy) for key, copy in self._copies.items()}
        return [
            (row, [arrays[key][start:end] for key, start, end in slices])
            for row, slices in zip(self._rows, self._slices, strict=True)
        ]


def _to_host(joined: Tensor) -> Tensor:
    import torch

    if joined.device.type != "cuda":
        return joined.cpu()
    target = torch.empty(joined.shape, dtype=joined.dtype, pin_memory=True)
    return target.copy_(joined, non_blocking=True)


def _host(tensor: Tensor) -> HostArray:
    """A CPU tensor as numpy; bfloat16, which numpy lacks, by way of float32."""
    import torch

    array = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    return np.asarray(array)
