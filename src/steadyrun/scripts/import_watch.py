"""Calls a function once a module has been imported by the script, never before: the order of imports stays its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def when_imported(name: str, action: Callable[[], None]) -> Callable[[], None]:
    """Call `action` when module `name` has been executed, at once if it has; returns a function that cancels it.

    What `action` raises would reach the script's import statement: it must contain its own errors.
    """
    if name in sys.modules and not _is_being_imported(sys.modules[name]):
        action()
        return lambda: None
    watcher = _Watcher(name, action)
    sys.meta_path.insert(0, watcher)
    return watcher.cancel


def _is_being_imported(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


class _Watcher:
    """A finder that finds nothing itself: it looks at what the other finders have found."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self._name, self._action = name, action

    def cancel(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                self._notify_after(spec.loader)
                return spec
        return None

    def _notify_after(self, loader: Any) -> None:
        """Only this one loader object is changed, and it is put back before the module is executed."""
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            execute(module)
            self.cancel()
            self._action()

        loader.exec_module = exec_module
