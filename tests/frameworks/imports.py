"""What the tests of imported trackers share: the command as a person types it, and points to compare."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

import steadyrun
from steadyrun.cli import app

runner = CliRunner()


def import_(*arguments: object) -> Any:
    return runner.invoke(app, ["import", *map(str, arguments)])


def imported(source: object, out: Path, *more: str) -> list[dict[str, Any]]:
    """What `steadyrun import --json` says of each run."""
    done = import_(source, "--out", out, "--json", *more)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def points(run: object, name: str, *, every_attempt: bool = False) -> list[tuple[int, float]]:
    found = steadyrun.open_run(str(run)).series(name, every_attempt=every_attempt)
    return list(zip(found.steps.tolist(), found.values.tolist(), strict=True))


def readable_or_told(path: Path, out: Path) -> int:
    """Imports what may be damaged: points, or 0 with exit code 2 and one clear line; nothing half-written."""
    done = import_(path, "--out", out, "--json")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    if done.exit_code == 0:
        held = json.loads(done.stdout)
        return sum(each["points"] for each in held["series"])
    assert done.exit_code == 2, done.output
    assert str(path) in done.stderr
    assert "Traceback" not in done.stderr
    assert not out.exists() or not list(out.iterdir())
    return 0
