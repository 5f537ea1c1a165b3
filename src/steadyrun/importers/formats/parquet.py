"""Parquet: wide and long tables, of one run or several, read row group by row group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from steadyrun.errors import LogError
from steadyrun.importers.formats.long_table import Points
from steadyrun.importers.formats.table_columns import LongColumns, RunCounter, long_columns, plain, run_columns, seconds
from steadyrun.importers.log_rows import (
    MOST_ROWS,
    PACK,
    WIDEST,
    Anomalies,
    FileSample,
    Format,
    Log,
    LogRows,
    SourceRun,
)
from steadyrun.importers.series_roles import TIME, rank


def _detect(sample: FileSample) -> bool:
    return sample.head.startswith(b"PAR1")


def _opened(path: Path) -> pq.ParquetFile:
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError, ValueError) as problem:
        raise LogError(f"{path} is not a complete Parquet file: {problem}") from problem
    if len(file.schema_arrow) > WIDEST:
        raise LogError(
            f"{path} has {len(file.schema_arrow):,} columns, so it does not look like a training log. Keep the "
            "metrics alone."
        )
    if file.metadata.num_rows > MOST_ROWS:
        raise LogError(
            f"{path} has {file.metadata.num_rows:,} rows, so it does not look like a training log. Keep every "
            "hundredth row."
        )
    return file


def _runs(path: Path) -> list[SourceRun]:
    try:
        file = _opened(path)
    except LogError:
        return [SourceRun("")]  # reading says what is wrong
    runs = RunCounter(run_columns(_names(file, lambda kind: _text(kind) or pa.types.is_integer(kind))))
    for batch in _batches(file, list(dict.fromkeys(runs.columns)), path, Anomalies()) if runs.columns else ():
        if not runs.add([_words(batch.column(name)) for name in runs.columns]):
            break
    return runs.parts()


def _read(path: Path, key: str, anomalies: Anomalies) -> Log:
    file = _opened(path)
    text, numeric = _names(file, _text), [name for name in _names(file, _numeric) if plain(name) != "id"]
    if not numeric:
        raise LogError(f"{path} has no numeric column. Store the loss as float.")
    run = run_columns(text + numeric)[:1] if key else ()
    dates = [name for name in text if rank(TIME, name) is not None]
    columns = long_columns(text, numeric)
    wanted = list(dict.fromkeys([*run, *(text + numeric if columns else numeric + dates)]))
    batches = (_of_run(batch, run, key) for batch in _batches(file, wanted, path, anomalies))
    if columns is not None:
        return _read_long(path, batches, columns, anomalies)
    return Log(LogRows(batch.num_rows, {n: _numbers(batch.column(n)) for n in numeric + dates}) for batch in batches)


def _read_long(path: Path, batches: Iterator[pa.RecordBatch], columns: LongColumns, anomalies: Anomalies) -> Log:
    points = Points(path, anomalies)
    for batch in batches:
        points.take(columns, batch.num_rows, partial(_column, batch, _numbers), partial(_column, batch, _words))
    return points.log()


def _column(batch: pa.RecordBatch, as_kind: Callable[[pa.Array], Any], name: str) -> Any:
    return as_kind(batch.column(name))


def _of_run(batch: pa.RecordBatch, run: tuple[str, ...], key: str) -> pa.RecordBatch:
    return batch.filter(pa.array([word == key for word in _words(batch.column(run[0]))], pa.bool_())) if run else batch


def _batches(file: pq.ParquetFile, names: list[str], path: Path, anomalies: Anomalies) -> Iterator[pa.RecordBatch]:
    size, total = path.stat().st_size, max(1, file.metadata.num_rows)
    done = 0
    try:
        for batch in file.iter_batches(PACK, columns=names):
            done += batch.num_rows
            anomalies.progress(size * done // total)
            yield batch
    except (pa.ArrowException, OSError, ValueError) as problem:
        raise LogError(f"{path}, after row {done:,}: {problem}") from problem


def _names(file: pq.ParquetFile, of_kind: Callable[[pa.DataType], bool]) -> list[str]:
    """The columns of a kind, without those that share their name with another."""
    counts = Counter(file.schema_arrow.names)
    return [field.name for field in file.schema_arrow if of_kind(field.type) and counts[field.name] == 1]


def _numeric(kind: pa.DataType) -> bool:
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return bool(plain or pa.types.is_timestamp(kind))


def _text(kind: pa.DataType) -> bool:
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(value) or pa.types.is_large_string(value))


def _numbers(column: pa.Array) -> pa.Array:
    """Float64; a moment as seconds since 1970."""
    if _text(column.type):
        return pa.array([None if word is None else seconds(word) for word in column.to_pylist()], pa.float64())
    if pa.types.is_timestamp(column.type):
        micros = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
        return pc.divide(micros.cast(pa.float64(), safe=False), 1e6)
    return column.cast(pa.float64(), safe=False)


def _words(column: pa.Array) -> list[str]:
    return ["" if word is None else str(word).strip() for word in column.to_pylist()]


FORMAT = Format("parquet", "Parquet", _detect, _read, _runs)
