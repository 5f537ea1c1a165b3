"""Replace a function of a module or a method of a class or an object, and put it back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

Around = Callable[..., Any]
"""Called as `around(original, *arguments)`; returns what the original returns."""

_MISSING = object()


class Patch:
    """One replaced attribute. After `remove`, whoever kept the replacement calls the original through it."""

    def __init__(self, owner: Any, name: str, around: Around) -> None:
        self._owner, self._name = owner, name
        self._own = vars(owner).get(name, _MISSING)  # a class or an object may have it from elsewhere
        self._replacement = self._wrapped(getattr(owner, name))
        self._around: Around | None = around
        setattr(owner, name, self._replacement)

    def remove(self) -> None:
        """Put the original back, unless somebody else has replaced it since: then ours passes every call on."""
        self._around = None
        if vars(self._owner).get(self._name) is not self._replacement:
            return
        if self._own is _MISSING:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._own)

    def _wrapped(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def replacement(*args: Any, **options: Any) -> Any:
            around = self._around
            return original(*args, **options) if around is None else around(original, *args, **options)

        return replacement


class Patches:
    """Several of them, removed in reverse order."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def put(self, owner: Any, name: str, around: Around) -> None:
        """Replace `owner.name` if it is there."""
        if hasattr(owner, name):
            self._undo.append(Patch(owner, name, around).remove)

    def also(self, undo: Callable[[], None]) -> None:
        """Undo this as well."""
        self._undo.append(undo)

    def remove(self) -> None:
        """Undo everything; twice does no harm."""
        while self._undo:
            self._undo.pop()()
