"""`steadyrun.import_log` and what the command line shares with it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from steadyrun.errors import LogError
from steadyrun.importers.anomalies import Anomalies
from steadyrun.importers.convert import Imported, imported
from steadyrun.importers.log_files import LogPlace, misnamed, places
from steadyrun.store.manifest import read_manifest

if TYPE_CHECKING:
    from steadyrun.panels.run_view import RunView


def import_log(
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    map: Mapping[str, str] | None = None,
    config: Mapping[str, Any] | None = None,
) -> RunView:
    """Make the run directory `path` out of a log that another tool wrote, and open it.

    `map` says which series of the log is which (`{"loss": "train/ce"}`), `config` declares what the run was meant to do
    (`{"vocab_size": 50257}`), as in `steadyrun.record`. What the log does not have is missing in the run.
    """
    from steadyrun.panels.run_view import open_run

    found = places(Path(source).expanduser(), format)
    if len(found) > 1:
        names = ", ".join(str(place.path) for place in found[:5])
        raise LogError(f"{source} holds {len(found)} runs ({names}…): give one of them")
    target = Path(path).expanduser()
    import_place(found[0], target, map or {}, config or {})
    return open_run(target)


def import_place(
    place: LogPlace,
    target: Path | None,
    given: Mapping[str, str],
    declared: Mapping[str, Any],
    progress: Callable[[int], None] = lambda _bytes: None,
) -> Imported:
    """Import one run; with no target, only look."""
    told = Anomalies(progress)
    if target is not None:
        _check_target(target, place)
    try:
        log = place.format.read(place.path, place.key, told)
        found = imported(log, place.path, place.format.name, given, declared, told, target)
    except OSError as problem:
        raise LogError(f"cannot read {place.path}: {problem.strerror or problem}") from problem
    except LogError as problem:
        if not place.named:
            raise
        raise misnamed(str(problem), place.format) from problem
    except (ArithmeticError, LookupError, TypeError, ValueError, pa.ArrowException) as problem:
        text = f"{place.path} cannot be read as {place.format.title}: {problem}"
        raise (misnamed(text, place.format) if place.named else LogError(text)) from problem
    except (RecursionError, MemoryError) as problem:
        raise LogError(f"{place.path} is built so that it cannot be read ({type(problem).__name__})") from problem
    found.name = place.name
    return found


def _check_target(target: Path, place: LogPlace) -> None:
    """A folder is written anew only if it was imported from a log of the same name."""
    if not target.exists():
        return
    try:
        manifest = read_manifest(target) if target.is_dir() else {}
    except (OSError, ValueError):
        manifest = {}
    about = manifest.get("imported")
    if manifest.get("state") == "imported" and isinstance(about, dict) and about.get("source") == place.path.name:
        return
    raise LogError(f"{target} is there already, and was not imported from {place.path.name}. Choose another folder.")


def folder_name(name: str) -> str:
    """A run's name as one plain folder name."""
    plain = re.sub(r"[^\w.+=@-]+", "-", name).strip("-.")[:100]
    return plain or "imported"
