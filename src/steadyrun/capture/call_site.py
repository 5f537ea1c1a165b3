"""The training script as its frames show it: where `run.step` is called, and which batch a failed step had."""

from __future__ import annotations

import hashlib
import sys
import weakref
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

from torch import Tensor

from steadyrun.program.frames import callers, raised_through, variable, variables

_OURS = str(Path(__file__).resolve().parents[1])
_MOST_LOOKS = 20  # steps in which the batch's name is looked for: 30 µs each
_TUTOR = str(Path(_OURS) / "tutor")


def training_frame() -> FrameType | None:
    """The frame of the training loop: the first above us that is not steadyrun's own."""
    return next((frame for frame in callers(sys._getframe(1)) if is_users(frame.f_code.co_filename)), None)


def is_users(file: str) -> bool:
    return not file.startswith(_OURS) or file.startswith(_TUTOR)


def code_location(frame: FrameType | None, trace: TracebackType | None = None) -> dict[str, Any]:
    """File, line and function of the training loop, and a fingerprint of the file."""
    if trace is not None:
        while trace.tb_next is not None and not is_users(trace.tb_frame.f_code.co_filename):
            trace = trace.tb_next
        frame, line = trace.tb_frame, trace.tb_lineno
    elif frame is not None:
        line = frame.f_lineno
    if frame is None:
        return {}
    file = frame.f_code.co_filename
    return {"file": file, "line": line, "function": frame.f_code.co_name, "sha256": fingerprint(file)}


def fingerprint(file: str) -> str | None:
    """A checksum of a source file; None for a notebook cell and its like."""
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return None


def references(batch: Any) -> list[weakref.ref[Any]]:
    """References to what a batch holds, to know it again: an id is given to another object when the batch is gone."""
    if type(batch) in (tuple, list, dict):  # of tensors, as nearly all of them are
        parts = list(batch.values() if type(batch) is dict else batch)
        if set(map(type, parts)) == {Tensor}:
            return list(map(weakref.ref, parts))
    refs = []
    for part in _parts(batch):
        with suppress(TypeError):  # a number, a string
            refs.append(weakref.ref(part))
    return refs


def is_made_of(batch: Any, refs: list[weakref.ref[Any]]) -> bool:
    """Whether a batch holds the objects that are referred to, and no others."""
    own_refs = references(batch)
    return len(own_refs) == len(refs) > 0 and all(own() is ref() for own, ref in zip(own_refs, refs, strict=True))


def _parts(batch: Any) -> Iterator[Any]:
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else None
    if parts is None:
        yield batch
        return
    for part in parts:
        yield from _parts(part)


class BatchFinder:
    """Finds the batch of a step that raised, in the frames of its traceback, or of one that is skipped.

    It is the second argument of the loss function where that is in the traceback. Otherwise it is the variable, or
    the variables side by side as in `batch=(x, y)`, that held the batch given to `run.step` before.
    """

    def __init__(self, loss_fn: Any) -> None:
        self._loss: CodeType | None = getattr(getattr(loss_fn, "__func__", loss_fn), "__code__", None)
        self._bound = hasattr(loss_fn, "__self__")
        self._looks = 0
        self._variable: tuple[CodeType, str] | None = None
        self._together: tuple[CodeType, list[str], type] | None = None

    @property
    def done(self) -> bool:
        """Whether no frame needs to be looked at: the batch's name is known, or it has none in the first steps."""
        return self._variable is not None or self._together is not None or self._looks >= _MOST_LOOKS

    def learn(self, frame: FrameType | None, batch: Any) -> None:
        """Remember the name under which the training loop holds its batch."""
        self._looks += 1
        if frame is not None:
            namespace = variables(frame)
            for name, value in namespace.items():
                if value is batch:
                    self._variable = (frame.f_code, name)
                    return
            self._learn_together(frame, namespace, batch)

    def _learn_together(self, frame: FrameType, namespace: dict[str, Any], batch: Any) -> None:
        if type(batch) not in (tuple, list) or not batch:
            return
        names = {id(value): name for name, value in namespace.items()}
        if all(id(item) in names for item in batch):
            self._together = (frame.f_code, [names[id(item)] for item in batch], type(batch))

    def current_batch(self, frame: FrameType | None) -> Any | None:
        """What the training loop holds now under the name that it gave to the batch before."""
        if self._variable is None or frame is None or frame.f_code is not self._variable[0]:
            return None
        return variable(frame, self._variable[1])

    def find(self, trace: TracebackType | None) -> Any | None:
        batch = None
        for frame in raised_through(trace):
            if self._variable is not None and frame.f_code is self._variable[0]:
                batch = variables(frame).get(self._variable[1], batch)
            elif self._together is not None and frame.f_code is self._together[0]:
                _, together, kind = self._together
                namespace = variables(frame)
                parts = [namespace[name] for name in together if name in namespace]
                batch = kind(parts) if len(parts) == len(together) else batch
            if frame.f_code is self._loss and self._loss is not None:
                names = self._loss.co_varnames[: self._loss.co_argcount]
                index = 2 if self._bound else 1
                if len(names) > index:
                    return variables(frame).get(names[index], batch)
        return batch
