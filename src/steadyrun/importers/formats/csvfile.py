"""CSV and TSV: wide tables, long ones, tables of several runs, and the exports of trackers."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pyarrow as pa

from steadyrun.importers.clean_lines import decoded, head
from steadyrun.importers.formats.column_numbers import numeric, words
from steadyrun.importers.formats.long_table import Points
from steadyrun.importers.formats.table_columns import (
    LongColumns,
    RunCounter,
    long_columns,
    run_columns,
)
from steadyrun.importers.formats.text_table import (
    Block,
    Layout,
    blocks,
    cells,
    detect,
    is_number,
    layout,
    names_of,
    rows,
)
from steadyrun.importers.log_rows import Anomalies, FileSample, Format, Log, LogRows, SourceRun

_COUNTERS = {"step", "iteration", "iter", "global_step", "trainer/global_step"}
_LISTED = 6  # columns in a message
_SAMPLE = 200  # rows that tell which columns are numbers


def _read(path: Path, key: str, anomalies: Anomalies) -> Log:
    table = layout(path)
    if not table.named:
        listed = ", ".join(table.names[:_LISTED]) + (" …" if len(table.names) > _LISTED else "")
        own = next((name for name in table.names if name.startswith("column_")), table.names[-1])
        anomalies.note(
            "no names of columns", f"they are called {listed}; --map ROLE=NAME names one, such as --map loss={own}"
        )
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
    runs = RunCounter(run_columns(table.names))
    for block in blocks(path, table, Anomalies()) if runs.columns else ():
        if not runs.add([words(block.columns[name]) for name in runs.columns if name in block.columns]):
            break
    return runs.parts()


def _of_run(block: Block, key: str) -> Block:
    """The rows of one run; all of them if the table holds one run."""
    columns = run_columns(block.columns)
    return block.filtered([entry == key for entry in words(block.columns[columns[0]])]) if key and columns else block


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
    mine = runs.get(key) or (next(iter(runs.values())) if len(runs) == 1 else {})
    others = {name for name in table.names if _COLUMN.fullmatch(name) and name not in mine}
    return Log(
        LogRows(
            block.count, {mine.get(name, name): column for name, column in block.columns.items() if name not in others}
        )
        for block in rows(path, table, anomalies)
    )


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
