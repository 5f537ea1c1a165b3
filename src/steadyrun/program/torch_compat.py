"""Wrap a function of another library, and leave that library as it was.

One policy for every patch. On top, the wrapper is taken off and what was found there is put back. If another tool
has wrapped it meanwhile, it stays inside theirs and only passes calls on; the next user finds it there and uses it
again, so it never stands in the chain twice. A wrapper always calls what it was put around and nothing else, so the
chain cannot become a circle.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

Around = Callable[..., Any]
"""Called as `around(call, *args, **options)` in the place of the function, which is `call`."""

_MARK = "__steadyrun__"
_MOST_NODES = 2_000  # of what another tool's wrapper refers to
_MISSING: Any = object()
_lock = threading.RLock()


@contextmanager
def wrapped(owner: Any, name: str, around: Around) -> Iterator[None]:
    """Have `around` in the place of `owner.name` inside the body."""
    wrapping = wrap(owner, name, around)
    try:
        yield
    finally:
        wrapping.remove()


def wrap(owner: Any, name: str, around: Around) -> Wrapping:
    """Put `around` in the place of `owner.name` (of a module, a class or an object) until `remove()`."""
    with _lock:
        layer = _layer_within(getattr(owner, name), owner, name) or _Layer(owner, name)
        return Wrapping(layer, around)


class Wrapping:
    """One use of a wrapper, to be removed as torch's hooks are."""

    def __init__(self, layer: _Layer, around: Around) -> None:
        self.around = around
        self._layer = layer
        layer.users = (*layer.users, self)

    def remove(self) -> None:
        """Take it off; twice does no harm."""
        with _lock:
            layer = self._layer
            layer.users = tuple(each for each in layer.users if each is not self)
            if not layer.users:
                layer.take_off()


class _Layer:
    """Our wrapper around one function, with all who use it; the first of them is the outermost."""

    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self.name = owner, name
        self.users: tuple[Wrapping, ...] = ()
        self._found = vars(owner).get(name, _MISSING)  # a class or an object may have it from elsewhere
        self.wrapper = self._around(getattr(owner, name))
        setattr(owner, name, self.wrapper)

    def take_off(self) -> None:
        """Put back what was found, unless another tool has wrapped it: then it stays and passes calls on."""
        if vars(self.owner).get(self.name) is not self.wrapper:
            return
        if self._found is _MISSING:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self._found)

    def _around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def wrapper(*args: Any, **options: Any) -> Any:
            if torch.compiler.is_compiling():  # nothing of ours gets into a graph
                return original(*args, **options)
            call = original
            for user in reversed(self.users):
                call = functools.partial(user.around, call)
            return call(*args, **options)

        setattr(wrapper, _MARK, self)
        return wrapper


def _layer_within(function: Any, owner: Any, name: str) -> _Layer | None:
    """Our layer for this function somewhere inside what stands there now: another tool may have wrapped it."""
    waiting, known = deque([function]), {id(function): function}
    while waiting:
        each = waiting.popleft()
        layer = _layer_of(each)
        if layer is not None and layer.owner is owner and layer.name == name:
            return layer
        for part in _parts(each):
            if id(part) not in known and len(known) < _MOST_NODES:
                known[id(part)] = part
                waiting.append(part)
    return None


def _layer_of(function: Any) -> _Layer | None:
    """The layer whose wrapper this is. `functools.wraps` copies the mark onto wrappers of others."""
    layer = vars(function).get(_MARK) if type(function) is FunctionType else None
    return layer if isinstance(layer, _Layer) and layer.wrapper is function else None


def _parts(held: Any) -> Iterable[Any]:
    """What a wrapper may call: what it closes over, its globals, its attributes. Nothing is executed."""
    kind = type(held)
    if kind in (list, tuple, dict):
        return list(islice(held.values() if kind is dict else held, _MOST_NODES))
    if kind is MethodType:
        return [held.__func__, held.__self__]
    if kind is FunctionType:
        return _parts_of_function(held)
    parts = [held.func, held.args, held.keywords] if issubclass(kind, functools.partial) else []
    if not issubclass(kind, ModuleType | torch.Tensor | Wrapping | _Layer):  # ours lead to layers that nobody calls
        with suppress(Exception):  # it has no attributes, or is a cell that is still empty
            parts += [held.cell_contents] if kind is CellType else list(vars(held).values())
    return parts


def _parts_of_function(function: FunctionType) -> list[Any]:
    known = function.__globals__
    names = [known[name] for name in function.__code__.co_names if name in known]
    closed = list(function.__closure__ or ())
    return [*closed, *vars(function).values(), *names, function.__defaults__, function.__kwdefaults__]


@contextmanager
def no_autocast() -> Iterator[None]:
    """An autocast that was made before is entered as one that is off; one that is on already is left."""
    with ExitStack() as stack:
        stack.enter_context(wrapped(torch.autocast, "__enter__", _enter_disabled))
        for device in ("cpu", "cuda", "mps", "xpu"):
            with suppress(RuntimeError):  # a kind of device for which this torch knows no autocast
                if torch.is_autocast_enabled(device):
                    stack.enter_context(torch.autocast(device, enabled=False))
        yield


def _enter_disabled(enter: Any, autocast: Any) -> Any:
    """The object is the program's, which may have made it once for all steps: it is left enabled."""
    held, autocast._enabled = autocast._enabled, False
    try:
        return enter(autocast)
    finally:
        autocast._enabled = held
