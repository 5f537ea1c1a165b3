"""The source files that a factory needs: its own module and the project's modules behind it, not installed packages."""

from __future__ import annotations

import inspect
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

import steadyrun

_PACKAGE = "steadyrun"
_OURS = ("steadyrun.tutor", "steadyrun.data", "steadyrun.errors", "steadyrun.records")  # light, and used by the tutor

STAND_IN = '''"""Stands in for steadyrun, which this folder does not need: the one class that a factory returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


'''


def modules_of(factory_module: str, loaded_since: Iterable[str]) -> dict[str, Path]:
    """Name and file of each module of the project that the factory's module uses."""
    found: dict[str, Path] = {}
    waiting = [factory_module, *loaded_since]
    while waiting:
        name = waiting.pop()
        module = sys.modules.get(name)
        if name in found or module is None or not _is_project(module):
            continue
        assert module.__file__ is not None
        found[name] = Path(module.__file__)
        waiting += [name.rpartition(".")[0], *_mentioned(module)]
    return found


def copy_to(folder: Path, modules: dict[str, Path]) -> None:
    """The modules under `folder`, as they are imported, and a stand-in for steadyrun where they name it."""
    for name, file in modules.items():
        place = folder.joinpath(*name.split("."))
        target = place / "__init__.py" if file.name == "__init__.py" else place.with_suffix(".py")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    package = folder / _PACKAGE
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text(STAND_IN + _task_source(), "utf-8")


def _task_source() -> str:
    from steadyrun.incidents.task import Task

    return inspect.getsource(Task).replace("nn.Module", "Any")


def _mentioned(module: ModuleType) -> Iterator[str]:
    for value in list(vars(module).values()):
        if isinstance(value, ModuleType):
            yield value.__name__
        elif isinstance(name := getattr(value, "__module__", None), str):
            yield name


def _is_project(module: ModuleType) -> bool:
    name, file = module.__name__, getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py"):
        return False
    if name == _PACKAGE or name.startswith(f"{_PACKAGE}."):
        return any(name == ours or name.startswith(f"{ours}.") for ours in _OURS)
    installed = {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    ours = str(Path(steadyrun.__file__).parent)
    return not any(Path(file).is_relative_to(place) for place in {*installed, ours})
