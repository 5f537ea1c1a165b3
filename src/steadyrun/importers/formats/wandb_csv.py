"""CSV exports of Weights & Biases: a column per run and metric, `RUN - METRIC`, and its smallest and largest values."""

from __future__ import annotations

import re
from pathlib import Path

from steadyrun.importers.anomalies import Anomalies
from steadyrun.importers.formats.csvfile import detect, layout, names_of, rows
from steadyrun.importers.log_rows import FileSample, Format, Log, LogRows, SourceRun

_COLUMN = re.compile(r"^(?P<run>.+) - (?P<name>.+?)(?P<end>__MIN|__MAX)?$")


def _runs(names: list[str]) -> dict[str, dict[str, str]]:
    """Run, then column to name; without the columns of smallest and largest values."""
    runs: dict[str, dict[str, str]] = {}
    for name in names:
        match = _COLUMN.fullmatch(name)
        if match and not match["end"]:
            runs.setdefault(match["run"], {})[name] = match["name"]
    return runs


def _detect(sample: FileSample) -> bool:
    if not detect(sample):
        return False
    names = names_of(sample)
    return bool(_runs(names)) and any(name.endswith(("__MIN", "__MAX")) for name in names)


def _parts(path: Path) -> list[SourceRun]:
    return [SourceRun(run, run) for run in _runs(layout(path).names)]


def _read(path: Path, key: str, anomalies: Anomalies) -> Log:
    table = layout(path)
    runs = _runs(table.names)
    mine = runs.get(key) or (next(iter(runs.values())) if len(runs) == 1 else {})
    others = {name for name in table.names if _COLUMN.fullmatch(name) and name not in mine}
    return Log(
        LogRows(
            block.count, {mine.get(name, name): column for name, column in block.columns.items() if name not in others}
        )
        for block in rows(path, table, anomalies)
    )


FORMAT = Format("wandb-csv", "CSV export of Weights & Biases", _detect, _read, _parts)
