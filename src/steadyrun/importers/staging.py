"""A folder that takes its place only when it is whole."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from steadyrun.errors import LogError


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
    """A folder beside the target that takes its place at the end; nothing of it stays where anything fails."""
    stage = target.with_name(f".importing-{os.getpid()}-{target.name}"[:200])
    try:
        stage.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target)
        stage.mkdir()
        yield stage
        if target.exists():
            old = target.with_name(f".replaced-{os.getpid()}-{target.name}"[:200])
            target.rename(old)
            stage.rename(target)
            shutil.rmtree(old, ignore_errors=True)
        else:
            stage.rename(target)
    except OSError as problem:
        raise LogError(f"cannot write {target}: {problem}. Choose another folder.") from problem
    finally:
        shutil.rmtree(stage, ignore_errors=True)
