"""MLflow: every run of a folder `mlruns/`, and of a database `mlflow.db`.

The folder is plain text and is read as such: MLflow's own client refuses it by now, and would write to it. The database
is read by MLflow's client, from a copy, for the client may change its tables.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

from steadyrun.errors import LogError
from steadyrun.importers.formats.extras import needed
from steadyrun.importers.log_rows import Anomalies, FileSample, Format, Log, Row, SourceRun, packed

Point = tuple[int, int, float]
"""Time in milliseconds, step, value."""


def rows_of(metrics: Mapping[str, list[Point]], anomalies: Anomalies) -> Iterator[Row]:
    """Points in the order of their times; those with the same step next to each other are one row."""
    stepless = _stepless(metrics, anomalies)
    points = sorted(
        ((time, step, name, value) for name, series in metrics.items() for time, step, value in series),
        key=lambda point: point[:2],
    )
    for step, same in groupby(points, key=lambda point: point[1]):
        front: dict[str, float] = {} if stepless else {"step": float(step)}
        row: dict[str, float] = {}
        for time, _, name, value in same:
            own = f"logged/{name}" if name in ("step", "timestamp") else name
            if own in row:
                yield row
                row = {}
            row = row or {**front, "timestamp": float(time)}
            row[own] = value
        yield row


def _stepless(metrics: Mapping[str, list[Point]], anomalies: Anomalies) -> bool:
    """MLflow writes step 0 if a program gives none: a run whose points all have step 0 was not counted."""
    all_points = [point for points in metrics.values() for point in points]
    if any(step for _, step, _ in all_points) or len(all_points) == len(metrics):
        return False
    anomalies.note("points logged without a step", "the run is counted by its points", count=len(all_points))
    return True


_MAGIC = b"SQLite format 3\0"
_TABLES = {"experiments", "runs", "metrics", "params", "latest_metrics"}


def is_database(path: Path) -> bool:
    """Whether a file is a database of SQLite with MLflow's tables; looks at nothing but their names."""
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            return False
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except (sqlite3.Error, UnicodeError):
        return path.name == "mlflow.db"  # reading says what is wrong
    return tables >= _TABLES or path.name == "mlflow.db"


def client(path: Path) -> Any:
    """MLflow's client for a copy of the database as it is now."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # reading a log sends nothing
    with _quiet():
        needed("mlflow.tracking", "mlflow", path)
    needed("sqlalchemy", "mlflow", path)
    file = path.stat()
    return _client(path, file.st_mtime_ns, file.st_size)


@lru_cache(maxsize=1)
def _client(path: Path, _changed: int, _size: int) -> Any:
    folder = Path(tempfile.mkdtemp(prefix="steadyrun-mlflow-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for tail in ("", "-wal"):
        original = path.with_name(path.name + tail)
        if original.is_file():
            shutil.copyfile(original, folder / f"mlflow.db{tail}")
    address = f"sqlite:///{folder / 'mlflow.db'}"
    _update(address, path)
    return needed("mlflow.tracking", "mlflow", path).MlflowClient(tracking_uri=address)


def _update(address: str, path: Path) -> None:
    """The tables of the copy as this version of MLflow has them: a database may be older than the package."""
    tables = needed("mlflow.store.db.utils", "mlflow", path)
    engine = needed("sqlalchemy", "mlflow", path).create_engine(address)
    try:
        with _quiet():
            tables._upgrade_db(engine)
    finally:
        engine.dispose()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without MLflow's messages about a database that the user does not know of."""
    loggers = [logging.getLogger(name) for name in ("mlflow", "alembic")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Whatever MLflow and its database raise, as an error that names the file."""
    try:
        yield
    except (LogError, OSError, MemoryError):
        raise
    except Exception as problem:  # MLflow's, SQLAlchemy's, Alembic's and SQLite's own, which have no common root
        first = str(problem).strip().splitlines()[0][:300] if str(problem).strip() else type(problem).__name__
        raise LogError(
            f"{path} cannot be read as a database of MLflow: {first}. Export the run as CSV and import that."
        ) from problem


_NAME = "mlflow.runName"
_LONGEST = 10_000  # characters of a parameter
_LONGEST_POINT = 200  # characters of a line of a metric


# -- the folder -------------------------------------------------------------------------------------------------------


def _folder(path: Path) -> bool:
    """A run within `mlruns/`."""
    return (path / "meta.yaml").is_file() and (path / "metrics").is_dir()


def _folder_parts(path: Path) -> list[SourceRun]:
    about = _about(path)
    if about.get("lifecycle_stage") == "deleted":
        return []
    tag = path / "tags" / _NAME
    name = _text(tag).strip() if tag.is_file() else about.get("run_name", "")
    return [SourceRun(name or path.name)]


def _text(path: Path) -> str:
    """The beginning of a small file: whole, if it is what MLflow writes."""
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(_LONGEST)


def _about(run: Path) -> dict[str, str]:
    """The lines `name: text` of a run's meta.yaml."""
    pairs = (line.partition(": ") for line in _text(run / "meta.yaml").splitlines())
    return {name: text.strip().strip("'\"") for name, _, text in pairs if text.strip() not in ("", "null", "''")}


def _read_folder(path: Path, _key: str, anomalies: Anomalies) -> Log:
    metrics = {name: list(_lines(file, name, anomalies)) for name, file in _files(path / "metrics")}
    if not any(metrics.values()):
        raise LogError(f"{path} has no metrics. Give a run folder that has a folder metrics/.")
    config: dict[str, Any] = {name: _text(file) for name, file in _files(path / "params")}
    return Log(packed(rows_of({name: points for name, points in metrics.items() if points}, anomalies)), config=config)


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Names as MLflow has them, `train/loss` for the file loss in the folder train; links are not followed."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield path.relative_to(folder).as_posix(), path


def _lines(path: Path, name: str, anomalies: Anomalies) -> Iterator[Point]:
    """Lines `time value step`, and in some versions the name and digest of a dataset."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST), ""), start=1):
            cells = line.split()
            try:
                if len(cells) not in (2, 3, 5) or not line.endswith("\n") or len(line) > _LONGEST_POINT:
                    raise ValueError
                yield int(cells[0]), int(cells[2]) if len(cells) > 2 else 0, float(cells[1])
            except ValueError:
                anomalies.note("lines that are not points, or are cut off", "left out", f"{name}, line {number:,}")


# -- the database -----------------------------------------------------------------------------------------------------


def _detect(sample: FileSample) -> bool:
    return sample.path.is_file() and is_database(sample.path)


def _database_parts(path: Path) -> list[SourceRun]:
    """Every run that was not deleted; if they cannot be listed, the file itself: reading it reports what is wrong."""
    try:
        return _runs(path) if is_database(path) else [SourceRun(path.stem)]
    except LogError:
        return [SourceRun(path.stem)]


def _runs(path: Path) -> list[SourceRun]:
    with readable(path):
        mlflow_client = client(path)
        source_runs: list[SourceRun] = []
        for experiment in _paged(lambda token: mlflow_client.search_experiments(page_token=token)):
            ids = [experiment.experiment_id]
            runs = _paged(lambda token, ids=ids: mlflow_client.search_runs(ids, page_token=token))
            source_runs += [SourceRun(run.info.run_name or run.info.run_id, run.info.run_id) for run in runs]
    if not source_runs:
        raise LogError(
            f"{path}: the database of MLflow has no runs. Deleted runs are not read: restore one with `mlflow runs "
            "restore`."
        )
    return source_runs


def _paged(ask: Any) -> Iterator[Any]:
    token = None
    while True:
        page = ask(token)
        yield from page
        token = page.token
        if not token:
            return


def _read_database(path: Path, key: str, anomalies: Anomalies) -> Log:
    if not is_database(path):
        raise LogError(f"{path} is not a database of MLflow.")
    key = key or _runs(path)[0].key
    with readable(path):
        mlflow_client = client(path)
        run = mlflow_client.get_run(key)
        metrics = {
            name: [
                (point.timestamp, point.step, _value(point.value, anomalies))
                for point in mlflow_client.get_metric_history(key, name)
            ]
            for name in run.data.metrics
        }
    if not metrics:
        raise LogError(f"{path}: the run {run.info.run_name or key} has no metrics. Choose a run that logged some.")
    return Log(packed(rows_of(metrics, anomalies)), config=dict(run.data.params))


def _value(value: float, anomalies: Anomalies) -> float:
    """The database keeps infinity as the largest float."""
    if abs(value) != sys.float_info.max:
        return value
    anomalies.note("values that are the largest float", "read as infinity, which is how MLflow's database keeps it")
    return math.copysign(math.inf, value)


# -- one format -------------------------------------------------------------------------------------------------------


def _parts(path: Path) -> list[SourceRun]:
    return _folder_parts(path) if path.is_dir() else _database_parts(path)


def _read(path: Path, key: str, anomalies: Anomalies) -> Log:
    return _read_folder(path, key, anomalies) if path.is_dir() else _read_database(path, key, anomalies)


FORMAT = Format("mlflow", "MLflow (mlruns/ and mlflow.db)", _detect, _read, _parts, _folder, extra="mlflow")
