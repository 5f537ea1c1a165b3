"""The readers of the trackers' owners: packages that may be absent."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from steadyrun.errors import LogError


def needed(module: str, extra: str, path: Path) -> Any:
    """A module of a tracker's own package; if that is absent, the error names the extra to install."""
    try:
        return import_module(module)
    except ImportError as problem:
        raise LogError(
            f"{path}: reading it needs the package {module.partition('.')[0]}, which cannot be imported ({problem}). "
            f"Install it: pip install 'steadyrun[{extra}]'"
        ) from problem


def absent(module: str) -> bool:
    """Whether a module cannot be imported."""
    try:
        import_module(module)
    except ImportError:
        return True
    return False
