"""MLflow: every run of a folder `mlruns/`, and of a database `mlflow.db`.

The folder is plain text and is read as such: MLflow's own client refuses it by now, and would write to it. The database
is read by MLflow's client, from a copy, for the client may change its tables.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from steadyrun.errors import LogError
from steadyrun.importers.formats.mlflow_database import client, is_database, readable
from steadyrun.importers.formats.mlflow_points import Point, rows_of
from steadyrun.importers.model import Format, Log, Look, Part, packed
from steadyrun.importers.told import Told

_NAME = "mlflow.runName"
_LONGEST = 10_000  # characters of a parameter
_LONGEST_POINT = 200  # characters of a line of a metric


# -- the folder -------------------------------------------------------------------------------------------------------


def _folder(path: Path) -> bool:
    """A run within `mlruns/`."""
    return (path / "meta.yaml").is_file() and (path / "metrics").is_dir()


def _folder_parts(path: Path) -> list[Part]:
    about = _about(path)
    if about.get("lifecycle_stage") == "deleted":
        return []
    given = path / "tags" / _NAME
    name = _text(given).strip() if given.is_file() else about.get("run_name", "")
    return [Part(name or path.name)]


def _text(path: Path) -> str:
    """The beginning of a small file: whole, if it is what MLflow writes."""
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(_LONGEST)


def _about(run: Path) -> dict[str, str]:
    """The lines `name: text` of a run's meta.yaml."""
    pairs = (line.partition(": ") for line in _text(run / "meta.yaml").splitlines())
    return {name: text.strip().strip("'\"") for name, _, text in pairs if text.strip() not in ("", "null", "''")}


def _read_folder(path: Path, _key: str, told: Told) -> Log:
    metrics = {name: list(_lines(file, name, told)) for name, file in _files(path / "metrics")}
    if not any(metrics.values()):
        raise LogError(f"{path} has no metrics in it")
    config: dict[str, Any] = {name: _text(file) for name, file in _files(path / "params")}
    return Log(packed(rows_of({name: held for name, held in metrics.items() if held}, told)), config=config)


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Names as MLflow has them, `train/loss` for the file loss in the folder train; links are not followed."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield path.relative_to(folder).as_posix(), path


def _lines(path: Path, name: str, told: Told) -> Iterator[Point]:
    """Lines `time value step`, and in some versions the name and digest of a dataset."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST), ""), start=1):
            cells = line.split()
            try:
                if len(cells) not in (2, 3, 5) or not line.endswith("\n") or len(line) > _LONGEST_POINT:
                    raise ValueError
                yield int(cells[0]), int(cells[2]) if len(cells) > 2 else 0, float(cells[1])
            except ValueError:
                told.odd("lines that are no point, or cut off", "left out", f"{name}, line {number:,}")


# -- the database -----------------------------------------------------------------------------------------------------


def _detect(look: Look) -> bool:
    return look.path.is_file() and is_database(look.path)


def _database_parts(path: Path) -> list[Part]:
    """Every run that was not deleted; where they cannot be listed, the file itself: reading says what is wrong."""
    try:
        return _runs(path) if is_database(path) else [Part(path.stem)]
    except LogError:
        return [Part(path.stem)]


def _runs(path: Path) -> list[Part]:
    with readable(path):
        held = client(path)
        found: list[Part] = []
        for experiment in _paged(lambda token: held.search_experiments(page_token=token)):
            ids = [experiment.experiment_id]
            runs = _paged(lambda token, ids=ids: held.search_runs(ids, page_token=token))
            found += [Part(run.info.run_name or run.info.run_id, run.info.run_id) for run in runs]
    if not found:
        raise LogError(f"{path}: the database of MLflow has no runs in it")
    return found


def _paged(ask: Any) -> Iterator[Any]:
    token = None
    while True:
        page = ask(token)
        yield from page
        token = page.token
        if not token:
            return


def _read_database(path: Path, key: str, told: Told) -> Log:
    if not is_database(path):
        raise LogError(f"{path} is not a database of MLflow")
    key = key or _runs(path)[0].key
    with readable(path):
        held = client(path)
        run = held.get_run(key)
        metrics = {
            name: [(each.timestamp, each.step, _value(each.value, told)) for each in held.get_metric_history(key, name)]
            for name in run.data.metrics
        }
    if not metrics:
        raise LogError(f"{path}: the run {run.info.run_name or key} has no metrics")
    return Log(packed(rows_of(metrics, told)), config=dict(run.data.params))


def _value(held: float, told: Told) -> float:
    """The database keeps infinity as the largest float."""
    if abs(held) != sys.float_info.max:
        return held
    told.odd("values that are the largest float", "read as infinity, which is how MLflow's database keeps it")
    return math.copysign(math.inf, held)


# -- one format -------------------------------------------------------------------------------------------------------


def _parts(path: Path) -> list[Part]:
    return _folder_parts(path) if path.is_dir() else _database_parts(path)


def _read(path: Path, key: str, told: Told) -> Log:
    return _read_folder(path, key, told) if path.is_dir() else _read_database(path, key, told)


FORMAT = Format("mlflow", "MLflow (mlruns/ and mlflow.db)", _detect, _read, _parts, _folder, extra="mlflow")
