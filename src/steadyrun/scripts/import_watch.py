"""Calls a function once a module has been imported by the script, never before: the order of imports stays its own.

One finder at the front of `sys.meta_path` serves everybody who waits. It finds nothing itself: it asks the other
finders, and the loader that they give runs the module as always. It leaves when nobody waits any more.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Action = Callable[[], None]


def when_imported(name: str, action: Action) -> Callable[[], None]:
    """Call `action` when module `name` has been executed, at once if it has; returns a function that cancels it.

    What `action` raises would reach the script's import statement: it must contain its own errors.
    """
    if name in sys.modules and not _is_being_imported(sys.modules[name]):
        action()
        return lambda: None
    return _watcher.wait(name, action)


def _is_being_imported(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


class _Watcher:
    """A finder that looks at what the other finders have found."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Action]] = {}

    def wait(self, name: str, action: Action) -> Callable[[], None]:
        self._waiting.setdefault(name, []).append(action)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

        def cancel() -> None:
            if action in self._waiting.get(name, ()):
                self._waiting[name].remove(action)
            if not self._waiting.get(name):
                self._done(name)

        return cancel

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._waiting:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                self._notify_after(spec.loader, fullname)
                return spec
        return None

    def _notify_after(self, loader: Any, name: str) -> None:
        """Only this one loader object is changed, and it is put back before the module is executed."""
        execute = getattr(loader, "exec_module", None)
        if execute is None or not hasattr(loader, "__dict__"):
            return

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            execute(module)
            for action in self._done(name):
                action()

        loader.exec_module = exec_module

    def _done(self, name: str) -> list[Action]:
        actions = self._waiting.pop(name, [])
        if not self._waiting and self in sys.meta_path:
            sys.meta_path.remove(self)
        return actions


_watcher = _Watcher()
