"""Which folder a training is recorded into: one run directory is one training, however often a script is started."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from steadyrun.errors import RunDirectoryError
from steadyrun.probes.opening import own_rank
from steadyrun.probes.problems import say
from steadyrun.store.layout import MANIFEST, metrics_folder, plain_name
from steadyrun.store.manifest import read_manifest


def folder_of(path: Path, options: dict[str, Any], *, goes_on: bool) -> Path:
    """`path` for a first training, `path-2` for the next; one that goes on (`goes_on`) stays in the last of them.

    `name` is taken out of `options`. With `resume=False` there is one folder, and `record` refuses it if taken.
    No rank waits for another: each looks at its own files, and at whether a training has ended there.
    """
    name = options.pop("name", None)
    base = (path if name is None else path / plain_name(name)).expanduser().absolute()
    if options.get("resume") is False:
        return base
    rank = options.get("rank")
    mine = own_rank() if rank is None else rank
    numbered = (base if n == 1 else base.with_name(f"{base.name}-{n}") for n in itertools.count(1))
    used: list[Path] = []
    for folder in numbered:
        if not _is_used(folder, mine):
            break
        used.append(folder)
    if goes_on:
        return used[-1] if used else base
    if used:
        say(f"{used[-1]} holds another training; this one is recorded into {folder}")
    return folder


def _is_used(folder: Path, rank: int) -> bool:
    """Whether this rank has recorded there, or a training that this one is no part of."""
    if metrics_folder(folder, rank).exists():
        return True
    try:
        return (folder / MANIFEST).exists() and read_manifest(folder).get("state") != "running"
    except RunDirectoryError:
        return True
