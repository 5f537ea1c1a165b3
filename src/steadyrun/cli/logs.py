"""A log of another tool where a run directory is asked for: imported for the time of the command."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from steadyrun.cli.messages import as_typed, say
from steadyrun.cli.runs import is_run, runs_near
from steadyrun.errors import LogError


@contextmanager
def run_of(given: str) -> Iterator[str]:
    """The run directory at a path; where there is a log instead, one made of it for the time of the command."""
    path = Path(given).expanduser()
    damaged = (path / "metrics").is_dir() and not (path / "meta.yaml").is_file()  # a run of MLflow has both
    if not path.exists() or is_run(path) or damaged or (path.is_dir() and runs_near(path)):
        yield given
        return
    from steadyrun.importers.finding import places
    from steadyrun.importers.opening import folder_name, import_place

    try:
        found = places(path)
    except LogError:
        if path.is_dir():  # an ordinary folder: that it is no run is said by those who wanted one
            yield given
            return
        raise
    if len(found) > 1:
        some = "\n  ".join(f"{as_typed('steadyrun')} check {shlex.quote(str(place.path))}" for place in found[:5])
        raise LogError(
            f"{given} holds {len(found)} logs. Import them all with `steadyrun import`, or give one:\n  {some}"
        )
    with tempfile.TemporaryDirectory(prefix="steadyrun-") as folder:
        target = Path(folder) / folder_name(found[0].name)
        done = import_place(found[0], target, {}, {})
        say(f"{path} is a log ({found[0].format.title}): imported for this check alone")
        for line in done.odd:
            say(f"  odd: {line}")
        yield str(target)
