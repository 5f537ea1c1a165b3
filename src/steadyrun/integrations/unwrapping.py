"""What a framework has wrapped, unwrapped."""

from __future__ import annotations

from typing import Any

_WRAPPERS = 5


def innermost(optimizer: Any) -> Any:
    """The optimizer that steps: accelerate and others put wrappers around it. A list stays a list."""
    if isinstance(optimizer, list | tuple):
        return [innermost(each) for each in optimizer]
    for _ in range(_WRAPPERS):
        inner = getattr(optimizer, "optimizer", None)
        if inner is None or not hasattr(inner, "param_groups"):
            break
        optimizer = inner
    return optimizer
