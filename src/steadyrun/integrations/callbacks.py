"""Shared by the callbacks of all frameworks: options, run folders, unwrapped optimizers."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steadyrun.errors import RunDirectoryError, UsageError
from steadyrun.probes.problems import say
from steadyrun.recording.process import own_rank
from steadyrun.recording.record import record
from steadyrun.recording.run import Run
from steadyrun.store.layout import MANIFEST, metrics_folder, plain_name, read_manifest

Options = dict[str, Any]
"""Keyword arguments that are handed on to `steadyrun.record` or `run.watch`, which check them."""

Intent = dict[str, object]
"""What a framework declares of a training, in the names of steadyrun's config."""

_OURS = {"path", "config", "first_step"}  # of `record`: known to the framework, or an argument of its own
_THEIRS = {"self", "model", "optimizer", "scheduler", "scaler", "loader", "preflight"}  # of `watch`


def sorted_out(options: Mapping[str, object]) -> tuple[Options, Options]:
    """The options of `record` and those of `watch`; an error for any other."""
    of_record = set(inspect.signature(record).parameters) - _OURS
    of_watch = set(inspect.signature(Run.watch).parameters) - _THEIRS
    known = sorted(of_record | of_watch)
    for name in options:
        if name not in known:
            raise UsageError(f"SteadyrunCallback has no option {name!r}; it takes {', '.join(known)}")
    recorded = {name: value for name, value in options.items() if name in of_record}
    return recorded, {name: value for name, value in options.items() if name in of_watch}


_WRAPPERS = 5


def innermost(optimizer: object) -> object:
    """The optimizer that steps: accelerate and others put wrappers around it. A list stays a list."""
    if isinstance(optimizer, list | tuple):
        return [innermost(wrapped) for wrapped in optimizer]
    for _ in range(_WRAPPERS):
        inner = getattr(optimizer, "optimizer", None)
        if inner is None or not hasattr(inner, "param_groups"):
            break
        optimizer = inner
    return optimizer


def folder_of(path: Path, options: Options, *, goes_on: bool, quiet: bool = False) -> Path:
    """`path` for a first training, `path-2` for the next; a resumed training (`goes_on`) stays in the last of them.

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
    if used and mine == 0 and not quiet:
        say(f"{used[-1]} holds another training; this one is recorded into {folder}")
    return folder


def _is_used(folder: Path, rank: int) -> bool:
    """Whether this rank, or another training, has recorded there."""
    if metrics_folder(folder, rank).exists():
        return True
    try:
        return (folder / MANIFEST).exists() and read_manifest(folder).get("state") != "running"
    except RunDirectoryError:
        return True
