"""MLflow's client on a copy of a database: the original is never opened for writing."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from steadyrun.errors import LogError
from steadyrun.importers.formats.extras import needed

_MAGIC = b"SQLite format 3\0"
_TABLES = {"experiments", "runs", "metrics", "params", "latest_metrics"}


def is_database(path: Path) -> bool:
    """Whether a file is a database of SQLite with MLflow's tables; looks at nothing but their names."""
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            return False
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as held:
            found = {name for (name,) in held.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except (sqlite3.Error, UnicodeError):
        return path.name == "mlflow.db"  # reading says what is wrong
    return found >= _TABLES or path.name == "mlflow.db"


def client(path: Path) -> Any:
    """MLflow's client for a copy of the database as it is now."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # reading a log tells nobody
    with _quiet():
        needed("mlflow.tracking", "mlflow", path)
    needed("sqlalchemy", "mlflow", path)
    found = path.stat()
    return _client(path, found.st_mtime_ns, found.st_size)


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
    before = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for each, level in zip(loggers, before, strict=True):
            each.setLevel(level)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Whatever MLflow and its database raise, as an error that names the file."""
    try:
        yield
    except (LogError, OSError, MemoryError):
        raise
    except Exception as problem:  # MLflow's, SQLAlchemy's, Alembic's and SQLite's own, which have no common root
        first = str(problem).strip().splitlines()[0][:300] if str(problem).strip() else type(problem).__name__
        raise LogError(f"{path} cannot be read as a database of MLflow: {first}") from problem
