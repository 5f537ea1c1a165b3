"""Copies from a CUDA device beside the training: pinned memory made in slabs, a stream and an event of their own.

Forward and backward pass only read parameters and moments, so they are copied meanwhile. The optimizer's step is what
changes them: it waits for the copy, on the device and not on the host. Buffers (the statistics of a normalisation)
change in the forward pass, so they are copied before it, in the stream of the training.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import finalize

import numpy as np
import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from steadyrun.program.torch_compat import foreach_copy_

SLAB = 2**26  # bytes that are pinned at once: about 7 ms in which nothing can be sent to the device
_PAGE = 4096
_ALIGNED = 256
_CHANGED_BY_STEPS = ("parameters", "optimizers")
_MOST_MISSED = 2  # copies that no optimizer step waited for, before copies are made in the stream of the training

Wanted = tuple[str, torch.Size, torch.dtype]


class Beside:
    """Copies that are under way beside the training: their events, and what they are copies of."""

    def __init__(self, events: Sequence[Any] = (), tensors: Sequence[Tensor] = ()) -> None:
        self.events = events
        self._versions = [(tensor, tensor._version) for tensor in tensors]

    @property
    def untouched(self) -> bool:
        """Whether nothing has been written to the tensors since; torch counts, except for what goes through `.data`."""
        return all(tensor._version == version for tensor, version in self._versions)


class Staging:
    """Host memory for the copies, by name, and the copying."""

    def __init__(self, *, pin: bool = True) -> None:
        self._pin = pin
        self._buffers: dict[str, Tensor] = {}
        self._slab: Tensor | None = None
        self._used = 0
        self._streams: dict[torch.device, Any] = {}
        self._held_up = 0.0  # seconds, by the last `make`
        self._timed: tuple[int, Any, Any] | None = None  # bytes, and the events around their copy
        self.beside = True  # in a stream of its own

    def lacking(self, tensors: Mapping[str, Tensor]) -> list[Wanted]:
        """What there is no memory for yet."""
        return [
            (name, tensor.shape, tensor.dtype)
            for name, tensor in tensors.items()
            if (buffer := self._buffers.get(name)) is None
            or buffer.shape != tensor.shape
            or buffer.dtype != tensor.dtype
        ]

    def make(self, wanted: Sequence[Wanted], most: int = 1) -> float:
        """Make memory for these, with at most so many new slabs; the seconds for which it held up the device."""
        self._held_up, made = 0.0, 0
        for name, shape, dtype in wanted:
            size = shape.numel() * dtype.itemsize
            fits = size > SLAB or (self._slab is not None and self._used + size <= SLAB)
            if made >= most and (size > SLAB or not fits):
                break
            made += size > SLAB or not fits
            self._buffers[name] = self._room(size).view(dtype).view(shape)
        return self._held_up

    def clear(self) -> None:
        """Let go of the memory."""
        self._buffers.clear()
        self._slab, self._used = None, 0

    def measure(self, tensors: Mapping[str, Tensor]) -> None:
        """Time a copy of what there is memory for, once: so `speed` is known before the rest is made."""
        if self._timed is not None:
            return
        lacking = {name for name, _, _ in self.lacking(tensors)}
        here: dict[torch.device, list[str]] = {}
        for name, tensor in tensors.items():
            if name not in lacking and tensor.device.type != "cpu":
                here.setdefault(tensor.device, []).append(name)
        for device, names in here.items():
            self._copy_beside(device, names, tensors, self._buffers)

    def _room(self, size: int) -> Tensor:
        if size > SLAB:
            return self._fresh(size)
        if self._slab is None or self._used + size > SLAB:
            self._slab, self._used = self._fresh(SLAB), 0
        start, self._used = self._used, -(-(self._used + size) // _ALIGNED) * _ALIGNED
        return self._slab[start : start + size]

    def _fresh(self, size: int) -> Tensor:
        """Pinned memory. Pages that are there already are pinned six times as fast as those that torch would make."""
        memory = np.empty(size, np.uint8)
        if self._pin:
            memory[::_PAGE] = 0
            began = time.perf_counter()
            if not _pinned(memory):
                return torch.empty(size, dtype=torch.uint8, pin_memory=True)
            self._held_up += time.perf_counter() - began
        return torch.from_numpy(memory)

    def copies(self, tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Beside]:
        """Start the copies; those that whatever changes parameters or moments must wait for."""
        kept = {name: self._buffers[name] for name in tensors}
        here = [name for name, tensor in tensors.items() if tensor.device.type == "cpu"]
        if here:
            foreach_copy_([kept[name] for name in here], [tensors[name] for name in here])
        beside: dict[torch.device, list[str]] = {}
        for name, tensor in tensors.items():
            if tensor.device.type != "cpu" and self.beside and name.startswith(_CHANGED_BY_STEPS):
                beside.setdefault(tensor.device, []).append(name)
            elif tensor.device.type != "cpu":
                kept[name].copy_(tensor, non_blocking=True)
        events = [self._copy_beside(device, names, tensors, kept) for device, names in beside.items()]
        return kept, Beside(events, [tensors[name] for names in beside.values() for name in names])

    def _copy_beside(
        self, device: torch.device, names: list[str], tensors: Mapping[str, Tensor], kept: Mapping[str, Tensor]
    ) -> Any:
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream = self._streams[device]
        stream.wait_stream(torch.cuda.current_stream(device))
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            began.record(stream)
            for name in names:
                kept[name].copy_(tensors[name], non_blocking=True)
            ended.record(stream)
        self._timed = (sum(tensors[name].nbytes for name in names), began, ended)
        return ended

    def speed(self) -> float | None:
        """Bytes a second of the last copy; None if it is not known, or not done."""
        if self._timed is None or not self._timed[2].query():
            return None
        size, began, ended = self._timed
        return float(size / max(1e-6, began.elapsed_time(ended) / 1e3))


def _pinned(memory: np.ndarray[Any, Any]) -> bool:
    """Pin memory until it is freed; False if CUDA refuses."""
    runtime, place = torch.cuda.cudart(), memory.ctypes.data  # type: ignore[no-untyped-call]
    if int(runtime.cudaHostRegister(place, memory.nbytes, 0)):
        return False
    finalize(memory, runtime.cudaHostUnregister, place).atexit = False
    return True


class Overlap:
    """Holds a copy that is under way, until the next optimizer step waits for it or it turns out that none does."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._beside = Beside()
        self._done: Callable[[], None] | None = None
        self._missed = 0

    def begin(self, beside: Beside, done: Callable[[], None]) -> None:
        """`done` is called as soon as the copy is sure to be of one moment; at once if nothing is beside."""
        if not beside.events:
            done()
            return
        self._beside, self._done = beside, done
        self._handle = register_optimizer_step_pre_hook(self._step_begins)

    def settle(self) -> None:
        """What the training does from here on waits for the copy. The copy is dropped if something did not wait."""
        done, whole = self._done, self._beside.untouched
        self._wait()
        if done is not None:
            self._missed = 0 if whole else self._missed + 1
            if whole:
                done()

    def step_ended(self) -> bool:
        """A step is over: False if copies beside do not work here, since no optimizer step comes to be seen."""
        if self._done is not None:  # nothing waited, so what was copied may be half of one moment, half of the next
            self._wait()
            self._missed += 1
        return self._missed < _MOST_MISSED

    def _step_begins(self, *_: Any) -> None:
        self.settle()

    def _wait(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        for event in self._beside.events:
            event.wait()  # the stream of the training, not the host
        self._beside, self._done = Beside(), None
