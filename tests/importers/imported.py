"""Helpers: a log written to a file, imported, and what became of its series."""

from __future__ import annotations

from pathlib import Path

import steadyrun
from steadyrun.importers.convert import Imported
from steadyrun.importers.import_log import import_place
from steadyrun.importers.log_files import places


def points(path: Path, *names: str) -> dict[str, list[tuple[int, float]]]:
    """Series of the run that a log becomes: (step, value) by name; names that it does not have are missing."""
    run = steadyrun.import_log(path, path.with_name(f"{path.name}-run"))
    there = set(run.names())
    found = {}
    for name in names or sorted(there):
        if name in there:
            series = run.series(name)
            found[name] = list(zip(series.steps.tolist(), series.values.tolist(), strict=True))
    return found


def looked(path: Path, **given: str) -> Imported:
    """What `--dry-run` says of a log."""
    (place,) = places(path)
    return import_place(place, None, given, {})
