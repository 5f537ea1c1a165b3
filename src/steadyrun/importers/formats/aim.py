"""Aim's folder `.aim`: a RocksDB in an encoding of Aim's own. It is recognised, and the error names the export."""

from __future__ import annotations

from pathlib import Path

from steadyrun.errors import LogError
from steadyrun.importers.log_rows import Anomalies, FileSample, Format, Log


def _detect(_sample: FileSample) -> bool:
    return False


def _folder(path: Path) -> bool:
    return (path / "seqs").is_dir() and (path / "meta").is_dir() and (path / "VERSION").is_file()


def _read(path: Path, _key: str, _anomalies: Anomalies) -> Log:
    raise LogError(
        f"{path}: only Aim itself reads its own storage. Export it with Aim (`metric.dataframe(include_run=True, "
        "include_name=True, include_context=True)` of every metric, joined with pandas and saved as CSV), then import "
        "the CSV file: see docs/import/trackers.md"
    )


FORMAT = Format("aim", "Aim (its exports as CSV)", _detect, _read, folder=_folder)
