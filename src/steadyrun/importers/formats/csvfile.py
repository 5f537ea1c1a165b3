"""CSV and TSV: wide tables, long ones, tables of several runs, and the exports of trackers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa

from steadyrun.importers.clean_lines import decoded, head
from steadyrun.importers.formats.column_numbers import numeric, words
from steadyrun.importers.formats.long_table import Points
from steadyrun.importers.formats.table_columns import (
    LongColumns,
    RunCounter,
    label_columns,
    long_columns,
    run_columns,
    runs_by_column,
)
from steadyrun.importers.formats.table_layout import Layout, cells, detect, is_number, layout, names_of
from steadyrun.importers.formats.text_table import Block, blocks, rows
from steadyrun.importers.log_rows import Anomalies, FileSample, Format, Log, LogRows, SourceRun
from steadyrun.importers.series_roles import name_of_file

_COUNTERS = {"step", "iteration", "iter", "global_step", "trainer/global_step"}
_LISTED = 6  # columns in a message
_SAMPLE = 200  # rows that show which columns are numbers


def _read(path: Path, key: str, anomalies: Anomalies) -> Log:
    table = layout(path)
    if not table.named:
        listed = ", ".join(table.names[:_LISTED]) + (" …" if len(table.names) > _LISTED else "")
        own = next((name for name in table.names if name.startswith("column_")), table.names[-1])
        anomalies.note(
            "no names of columns", f"they are called {listed}; --map ROLE=NAME names one, such as --map loss={own}"
        )
    if (runs := runs_by_column(table.names, name_of_file(path.stem))) and key in runs:
        return _of_column(rows(path, table, anomalies), table.names, runs, key)
    columns = _long(path, table)
    if columns is not None:
        return _read_long(path, table, columns, key, anomalies)
    log = Log(rows(path, table, anomalies, lambda block: _of_run(block, key)))
    plain = {name.lower() for name in table.names}
    if "epoch" in plain and not plain & _COUNTERS:
        log.kind = "mean of an epoch"
    return log


def _table_runs(path: Path) -> list[SourceRun]:
    table = layout(path)
    if columns := runs_by_column(table.names, name_of_file(path.stem)):
        return [SourceRun(run, run) for run in columns]
    runs = _run_counter(table.names)
    for block in blocks(path, table, Anomalies()) if runs.columns else ():
        if not runs.add([words(block.columns[name]) for name in runs.columns if name in block.columns]):
            break
    return runs.parts()


def _run_counter(names: Iterable[str]) -> RunCounter:
    """By the columns that name a run, else by the first that names a fold, a seed or a model."""
    there = list(names)
    named = run_columns(there)
    return RunCounter(named) if named else RunCounter(label_columns(there)[:1], labels=True)


def _of_run(block: Block, key: str) -> Block:
    """The rows of one run; all of them if the table holds one run."""
    columns = _run_counter(block.columns).columns if key else ()
    return block.filtered([entry == key for entry in words(block.columns[columns[0]])]) if columns else block


def _of_column(rows_of_all: Iterator[LogRows], names: list[str], runs: dict[str, dict[str, str]], key: str) -> Log:
    """One of several runs that stand in columns beside each other; columns of no run belong to all."""
    mine = runs[key]
    others = {name for columns in runs.values() for name in columns} - set(mine)
    kept = {name: mine.get(name, name) for name in names if name not in others}
    return Log(
        LogRows(pack.count, {kept[name]: column for name, column in pack.columns.items() if name in kept})
        for pack in rows_of_all
    )


def _long(path: Path, table: Layout) -> LongColumns | None:
    """The columns of a long table, by the kinds of the first cells of each."""
    lines = [line for line in decoded(head(path)).splitlines()[table.above :] if line.strip()][:_SAMPLE]
    sample = [row for line in lines if len(row := cells(line, table.mark)) == len(table.names)]
    text: list[str] = []
    numbers: list[str] = []
    for name, column in zip(table.names, zip(*sample, strict=True), strict=bool(sample)):
        filled = [cell for cell in column if cell]
        count = sum(map(is_number, filled))
        (numbers if filled and 2 * count >= len(filled) else text if filled else []).append(name)
    return long_columns(text, numbers)


def _read_long(path: Path, table: Layout, columns: LongColumns, key: str, anomalies: Anomalies) -> Log:
    points = Points(path, anomalies)
    for whole in blocks(path, table, anomalies):
        block = _of_run(whole, key)
        if set(block.columns) >= columns.names:
            points.take(columns, block.count, partial(_numbers, block, anomalies), partial(_words, block))
    return points.log()


def _numbers(block: Block, anomalies: Anomalies, name: str) -> pa.Array:
    return numeric(block.columns[name], False, name, anomalies)


def _words(block: Block, name: str) -> list[str]:
    return words(block.columns[name])


# CSV exports of Weights & Biases: a column per run and metric, `RUN - METRIC`, and its smallest and largest values.


_COLUMN = re.compile(r"^(?P<run>.+) - (?P<name>.+?)(?P<end>__MIN|__MAX)?$")


def _runs(names: list[str]) -> dict[str, dict[str, str]]:
    """Run, then column to name; without the columns of smallest and largest values."""
    runs: dict[str, dict[str, str]] = {}
    for name in names:
        match = _COLUMN.fullmatch(name)
        if match and not match["end"]:
            runs.setdefault(match["run"], {})[name] = match["name"]
    return runs


def _is_wandb_export(sample: FileSample) -> bool:
    if not detect(sample):
        return False
    names = names_of(sample)
    return bool(_runs(names)) and any(name.endswith(("__MIN", "__MAX")) for name in names)


def _parts(path: Path) -> list[SourceRun]:
    return [SourceRun(run, run) for run in _runs(layout(path).names)]


def _read_export(path: Path, key: str, anomalies: Anomalies) -> Log:
    table = layout(path)
    runs = _runs(table.names)
    names = [name for name in table.names if not name.endswith(("__MIN", "__MAX"))]
    return _of_column(rows(path, table, anomalies), names, runs, key if key in runs else next(iter(runs)))


# YOLO's results.csv: losses in parts; the core sums them.


_PARTS = (
    "box_loss", "cls_loss", "dfl_loss", "obj_loss", "seg_loss", "pose_loss", "kobj_loss", "angle_loss", "giou_loss",
    "l1_loss", "rle_loss",
)  # fmt: skip


def _is_yolo(sample: FileSample) -> bool:
    if not detect(sample):
        return False
    names = names_of(sample)
    return "epoch" in names and sum(f"train/{part}" in names for part in _PARTS) > 1


def _read_yolo(path: Path, _key: str, anomalies: Anomalies) -> Log:
    return Log(rows(path, layout(path), anomalies), kind="mean of an epoch")


FORMATS = (
    Format("yolo", "YOLO results.csv", _is_yolo, _read_yolo),
    Format("wandb-csv", "CSV export of Weights & Biases", _is_wandb_export, _read_export, _parts),
    Format("csv", "CSV (Lightning metrics.csv, Keras CSVLogger, any other)", detect, _read, _table_runs),
)
