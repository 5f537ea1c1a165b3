"""`steadyrun.import_log` and what the command line shares with it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from steadyrun.errors import LogError
from steadyrun.importers.convert import Imported, Request, imported
from steadyrun.importers.log_files import LogPlace, misnamed, places
from steadyrun.importers.log_rows import Anomalies
from steadyrun.importers.staging import check_target
from steadyrun.renamed_arguments import renamed

if TYPE_CHECKING:
    from steadyrun.panels.board import RunView


@renamed(format="log_format", map="mapping", run="number")
def import_log(
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    log_format: str | None = None,
    mapping: Mapping[str, str] | None = None,
    config: Mapping[str, Any] | None = None,
    number: int | None = None,
) -> RunView:
    """Convert a log of another tool to the run directory `path`, and open it.

    The format of `source` is detected; `log_format` overrides it with a name that `steadyrun import --list` shows.
    `mapping` names the series by role (`{"loss": "train/ce"}`). `config` declares what the run was meant to do
    (`{"vocab_size": 50257}`), as in `steadyrun.record`. `number` chooses a run from a log with several; 1 is the first.
    What the log does not contain is missing in the run.
    """
    from steadyrun.panels.board import open_run

    locations = places(Path(source).expanduser(), log_format)
    if len(locations) > 1:
        names = ", ".join(str(location.path) for location in locations[:5])
        raise LogError(f"{source} holds {len(locations)} runs ({names}…): give one of them")
    target = Path(path).expanduser()
    import_place(locations[0], target, mapping or {}, config or {}, run=number)
    return open_run(target)


def import_place(
    location: LogPlace,
    target: Path | None,
    given: Mapping[str, str],
    declared: Mapping[str, Any],
    run: int | None = None,
) -> Imported:
    """Import one run; with no target, only look. An error names the runs if there are several and none is chosen."""
    (only,) = import_runs(location, target, Request(given, declared, run, alone=True))
    return only


def import_runs(
    location: LogPlace, target: Path | None, wanted: Request, progress: Callable[[int], None] = lambda _bytes: None
) -> list[Imported]:
    """Import all runs of a log, or only one of them: one into `target`, several into `target-1`, `target-2` …"""
    anomalies = Anomalies(progress)
    if target is not None:
        check_target(target, location.path)
    try:
        log = location.format.read(location.path, location.key, anomalies)
        wanted = replace(wanted, surely=location.found)
        outcomes = imported(log, location.path, location.format.name, wanted, anomalies, target)
    except OSError as problem:
        raise LogError(f"cannot read {location.path}: {problem.strerror or problem}") from problem
    except LogError as problem:
        if not location.named:
            raise
        raise misnamed(str(problem), location.format) from problem
    except (ArithmeticError, LookupError, TypeError, ValueError, pa.ArrowException) as problem:
        text = f"{location.path} cannot be read as {location.format.title}: {problem}"
        raise (misnamed(text, location.format) if location.named else LogError(text)) from problem
    except (RecursionError, MemoryError) as problem:
        raise LogError(f"{location.path} is nested too deeply to parse ({type(problem).__name__})") from problem
    for outcome in outcomes:
        outcome.name = location.name if outcome.runs == 1 else f"{location.name}-{outcome.number}"
    return outcomes


def folder_name(name: str) -> str:
    """A run's name as one plain folder name."""
    plain = re.sub(r"[^\w.+=@-]+", "-", name).strip("-.")[:100]
    return plain or "imported"
