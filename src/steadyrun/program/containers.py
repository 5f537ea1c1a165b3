"""What programs hand around: tensors in tuples, mappings and dataclasses, nested as deep as they like."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

DEEPEST = 8  # containers within each other that are looked into


def parts(container: object) -> Iterator[tuple[str, Any]]:
    """The parts of one container, each with what leads to it: `['key']`, `[0]` or `.name`; none of anything else."""
    if isinstance(container, Mapping):
        for key, part in container.items():
            yield f"[{key!r}]", part
    elif isinstance(container, Sequence) and not isinstance(container, str | bytes):
        for index, part in enumerate(container):
            yield f"[{index}]", part
    elif is_dataclass(container) and not isinstance(container, type):
        for field in fields(container):
            yield f".{field.name}", getattr(container, field.name, None)


def leaves(container: Any, depth: int = DEEPEST) -> Iterator[Any]:
    """Everything in nested containers that is not a container itself."""
    if type(container) in (tuple, list):  # nearly all of them: in every step, so it has a way of its own
        for part in container if depth else ():
            yield from leaves(part, depth - 1)
    elif not is_container(container):
        yield container
    elif depth:
        for _, part in parts(container):
            yield from leaves(part, depth - 1)


def named_leaves(container: Any, depth: int = DEEPEST, path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves, each with the path that leads to it, such as `[0]['labels']`."""
    if not is_container(container):
        yield path, container
    elif depth:
        for step, part in parts(container):
            yield from named_leaves(part, depth - 1, path + step)


def is_container(value: object) -> bool:
    if isinstance(value, str | bytes | type):
        return False
    return isinstance(value, Mapping | Sequence) or is_dataclass(value)


def rebuilt(container: Any, change: Callable[[Any], Any], depth: int = DEEPEST) -> Any:
    """The same structure with other leaves; the original is left alone, and so are containers of unknown types."""
    if not is_container(container):
        return change(container)
    if not depth:
        return container
    if isinstance(container, Mapping):
        return _mapping(container, {key: rebuilt(part, change, depth - 1) for key, part in container.items()})
    if isinstance(container, tuple) and hasattr(container, "_fields"):
        return type(container)(*(rebuilt(part, change, depth - 1) for part in container))
    if type(container) in (list, tuple):
        return type(container)(rebuilt(part, change, depth - 1) for part in container)
    if is_dataclass(container):
        twin: Any = copy.copy(container)
        for field in fields(container):
            if hasattr(container, field.name):
                object.__setattr__(twin, field.name, rebuilt(getattr(container, field.name), change, depth - 1))
        return twin
    return container


def _mapping(container: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    """A mapping of the same kind; where that cannot be written to, a plain dict."""
    if type(container) is dict:
        return items
    try:
        twin = copy.copy(container)
        for key, value in items.items():
            twin[key] = value  # type: ignore[index]
    except Exception:
        return items
    return twin
