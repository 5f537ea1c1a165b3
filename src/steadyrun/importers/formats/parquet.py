"""Parquet: numeric columns, read row group by row group."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from steadyrun.errors import LogError
from steadyrun.importers.log_rows import MOST_ROWS, PACK, WIDEST, Anomalies, FileSample, Format, Log, LogRows


def _detect(sample: FileSample) -> bool:
    return sample.head.startswith(b"PAR1")


def _read(path: Path, _key: str, anomalies: Anomalies) -> Log:
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as problem:
        raise LogError(f"{path} is no whole Parquet file: {problem}") from problem
    if len(file.schema_arrow) > WIDEST:
        raise LogError(f"{path} has {len(file.schema_arrow):,} columns: this is no log of a training run")
    if file.metadata.num_rows > MOST_ROWS:
        raise LogError(f"{path} has {file.metadata.num_rows:,} rows: this is no log of a training run")
    numeric = [field.name for field in file.schema_arrow if _numeric(field.type)]
    if not numeric:
        raise LogError(f"{path} has no column of numbers")
    return Log(_rows(file, numeric, path, anomalies))


def _rows(file: pq.ParquetFile, names: list[str], path: Path, anomalies: Anomalies) -> Iterator[LogRows]:
    size, total = path.stat().st_size, max(1, file.metadata.num_rows)
    done = 0
    try:
        for batch in file.iter_batches(PACK, columns=names):
            done += batch.num_rows
            anomalies.progress(size * done // total)
            columns = {
                field.name: column.cast(pa.float64(), safe=False)
                for field, column in zip(batch.schema, batch.columns, strict=True)
                if _numeric(field.type)
            }
            yield LogRows(batch.num_rows, columns)
    except (pa.ArrowException, OSError) as problem:
        raise LogError(f"{path}, after row {done:,}: {problem}") from problem


def _numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


FORMAT = Format("parquet", "Parquet", _detect, _read)
