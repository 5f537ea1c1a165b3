"""The runs under a folder, and nothing outside it: no link is followed, no name leads out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from steadyrun.report.words import one_line
from steadyrun.store.layout import MANIFEST, metrics_folder

_DEEPEST = 6  # folders below the root
_MOST = 5000  # runs
_MOST_FOLDERS = 50_000


@dataclass(frozen=True)
class Place:
    """A run under the root: its folder, its path in addresses, and its name, safe to show."""

    path: Path
    key: str
    name: str


class Root:
    """The folder that is served."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()

    def runs(self) -> list[Place]:
        """Every run below the root, or the root itself where it is one; not those inside of other runs."""
        return [self._place(path) for path in _below(self.path)][:_MOST]

    def find(self, name: str) -> Place | None:
        """The run with this path below the root; None where it is none, or leads out in any way."""
        parts = name.split("/") if name else []
        if "\0" in name or "\\" in name or any(part in {"", ".", ".."} for part in parts):
            return None
        path = self.path.joinpath(*parts)
        try:
            inside = path.resolve(strict=True) == path and contained(path)
        except (OSError, RuntimeError):
            return None
        return self._place(path) if inside else None

    def _place(self, path: Path) -> Place:
        relative = "" if path == self.path else str(path.relative_to(self.path))
        return Place(path, quote(os.fsencode(relative)), one_line(relative or path.name or str(path)))


def contained(run: Path) -> bool:
    """Whether a folder is a run none of whose files lies elsewhere: a link could show what is not the run's."""
    if (run / MANIFEST).is_symlink() or not (run / MANIFEST).is_file():
        return False
    folders = [run / "metrics", metrics_folder(run, 0), run / "events"]
    if any(folder.is_symlink() for folder in folders):
        return False
    return not any(_has_link(folder) for folder in folders if folder.is_dir())


def _has_link(folder: Path) -> bool:
    with os.scandir(folder) as entries:
        return any(entry.is_symlink() for entry in entries)


def _below(root: Path) -> Iterator[Path]:
    """Breadth first, so that a deep tree of something else hides nothing near the root."""
    waiting, seen = [(root, 0)], 0
    while waiting:
        level, waiting = waiting, []
        for folder, depth in level:
            seen += 1
            if seen > _MOST_FOLDERS:
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
