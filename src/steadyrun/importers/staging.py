"""Folders of an import: staged beside their places, and renamed into them when they are whole."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from steadyrun.errors import LogError
from steadyrun.store.layout import read_manifest


def _sweep(target: Path) -> None:
    """Take away what imports that were killed left beside a target."""
    for left in target.parent.glob(f".importing-*-{glob.escape(target.name)}"):
        process = left.name.split("-")[1]
        if process.isdecimal() and (int(process) == os.getpid() or not _runs(int(process))):
            shutil.rmtree(left, ignore_errors=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it runs, and is somebody else's
        return True
    return True


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """A folder beside the target; nothing of it stays."""
    stage = target.with_name(f".importing-{os.getpid()}-{target.name}"[:200])
    try:
        stage.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target)
        stage.mkdir()
        yield stage
    except OSError as problem:
        raise LogError(f"cannot write {target}: {problem}. Choose another folder.") from problem
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def put(folder: Path, target: Path) -> None:
    """Give a staged folder its place; one that is there already is replaced."""
    if not target.exists():
        folder.rename(target)
        return
    old = target.with_name(f".replaced-{os.getpid()}-{target.name}"[:200])
    target.rename(old)
    folder.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def check_target(target: Path, source: Path) -> None:
    """A folder is written anew only if it was imported from a log of the same name."""
    if not target.exists():
        return
    try:
        manifest = read_manifest(target) if target.is_dir() else {}
    except (OSError, ValueError):
        manifest = {}
    about = manifest.get("imported")
    if manifest.get("state") == "imported" and isinstance(about, dict) and about.get("source") == source.name:
        return
    raise LogError(f"{target} is there already, and was not imported from {source.name}. Choose another folder.")
