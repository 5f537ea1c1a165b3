"""Find the runs under a folder, and nothing outside: links are not followed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from steadyrun.store.layout import MANIFEST, metrics_folder
from steadyrun.store.run_summary import one_line

_DEEPEST = 6  # folders below the root
_MOST = 5000  # runs
_MOST_FOLDERS = 50_000


@dataclass(frozen=True)
class RunPlace:
    """A run under the root: its folder, its path in addresses, and its name, safe to show."""

    path: Path
    key: str
    name: str


class Root:
    """The folder whose runs are served."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()

    def runs(self) -> list[RunPlace]:
        """Every run below the root, or the root itself if it is a run; not runs inside other runs."""
        return [self._run_place(path) for path in _below(self.path)][:_MOST]

    def find(self, name: str) -> RunPlace | None:
        """The run with this path below the root; None if it is not a run or leads out."""
        parts = name.split("/") if name else []
        if "\0" in name or "\\" in name or any(part in {"", ".", ".."} for part in parts):
            return None
        path = self.path.joinpath(*parts)
        try:
            inside = path.resolve(strict=True) == path and contained(path)
        except (OSError, RuntimeError):
            return None
        return self._run_place(path) if inside else None

    def _run_place(self, path: Path) -> RunPlace:
        relative = "" if path == self.path else str(path.relative_to(self.path))
        return RunPlace(path, quote(os.fsencode(relative)), one_line(relative or path.name or str(path)))


def contained(run: Path) -> bool:
    """Whether a folder is a run without links, which could expose foreign files."""
    if (run / MANIFEST).is_symlink() or not (run / MANIFEST).is_file():
        return False
    folders = [run / "metrics", metrics_folder(run, 0), run / "events", run / "incidents", *_of_processes(run)]
    return all(plain(folder) for folder in [*folders, *_incidents(run)])


def plain(folder: Path) -> bool:
    """Whether a folder contains only files and folders: no links, and no pipes, which block readers."""
    if folder.is_symlink():
        return False
    if not folder.is_dir():
        return not folder.exists()
    with os.scandir(folder) as entries:
        return all(entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False) for entry in entries)


def _of_processes(run: Path) -> list[Path]:
    """What each process of several leaves beside its series."""
    return [run / name for name in ("heartbeats", "stacks", "flight-recorder")]


def _incidents(run: Path) -> Iterator[Path]:
    """The incident folders, and the run directories of their replays."""
    for folder in _folders(run / "incidents"):
        replay = folder / "replay"
        yield from (folder, replay, replay / "metrics", metrics_folder(replay, 0), replay / "events")


def _below(root: Path) -> Iterator[Path]:
    """Search breadth-first, so that a deep unrelated tree does not hide runs near the root."""
    waiting, visited = [(root, 0)], 0
    while waiting:
        level, waiting = waiting, []
        for folder, depth in level:
            visited += 1
            if visited > _MOST_FOLDERS:
                return
            if (folder / MANIFEST).is_file():
                if _safely_contained(folder):
                    yield folder
            elif depth < _DEEPEST:
                waiting += [(child, depth + 1) for child in _folders(folder)]


def _safely_contained(folder: Path) -> bool:
    try:
        return contained(folder)
    except OSError:
        return False


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
