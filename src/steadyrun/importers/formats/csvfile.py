"""Tables of text: Lightning's metrics.csv, Keras' CSVLogger, any CSV or TSV.

Read in blocks, so that memory does not grow with the file.
"""

from __future__ import annotations

import codecs
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from steadyrun.errors import LogError
from steadyrun.importers.clean_lines import binary, decoded, encoding_of, head
from steadyrun.importers.formats.jsonfile import HELD_OUT, SPLITS
from steadyrun.importers.log_rows import WIDEST, Anomalies, FileSample, Format, Log, LogRows, SourceRun
from steadyrun.importers.number_text import MISSING, TooLargeError, number

_ENDS = re.compile(r"\r\n|\n|\r")
_HEAD = 2**18


@dataclass(frozen=True)
class Layout:
    """Names of the columns, the mark between cells, and how many lines come before the rows."""

    names: list[str]
    mark: str
    above: int


def detect(sample: FileSample) -> bool:
    """Whether a file is a table: names, then rows with as many cells, numbers among them."""
    if binary(sample.head):
        return False
    lines = _ENDS.split(decoded(sample.head))[:-1] if len(sample.head) >= 2**15 else _ENDS.split(decoded(sample.head))
    table = _layout_of(lines)
    if table is None:
        return sample.path.suffix.lower() in {".csv", ".tsv"} and _mark(_data(lines)) is not None
    rows = [line for line in lines[table.above :] if line.strip()][:20]
    return any(is_number(cell) for line in rows for cell in cells(line, table.mark))


def names_of(sample: FileSample) -> list[str]:
    """The names of a table that was detected; none where it has none."""
    table = _layout_of(_ENDS.split(decoded(sample.head)))
    return table.names if table else []


def layout(path: Path) -> Layout:
    """The layout of a file, or a clear error."""
    start = head(path, _HEAD)
    if binary(start):
        at = next((index for index, byte in enumerate(start) if byte < 9), 0)
        raise LogError(f"{path}, byte {at:,}: it is binary, no table of text")
    lines = _ENDS.split(decoded(start))
    table = _layout_of(lines)
    if table is None:
        if _mark(_data(lines)) is None:
            raise LogError(f"{path}, line 1: the first lines are no table (names, then rows with as many cells)")
        raise LogError(f"{path}, line 1: no names of columns; the first line has to name them, such as step,loss")
    if len(table.names) > WIDEST:
        raise LogError(f"{path}, line 1: {len(table.names):,} columns: this is no log of a training run")
    return table


def _data(lines: list[str]) -> list[str]:
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _layout_of(lines: list[str]) -> Layout | None:
    """The first line is the header; where it is numbers already, the comment right above it may be."""
    mark = _mark(_data(lines))
    if mark is None:
        return None
    at = next(index for index, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#"))
    header = cells(lines[at], mark)
    if _named(header):
        return Layout(_unique(header), mark, at + 1)
    above = cells(lines[at - 1].strip().lstrip("#"), mark) if at else []
    return Layout(_unique(above), mark, at) if len(above) == len(header) and _named(above) else None


def _mark(lines: list[str]) -> str | None:
    """What separates the cells: what the header has most of, and most rows have as often."""
    best: tuple[int, str] | None = None
    for mark in (",", "\t", ";", "|") if len(lines) > 1 else ():
        width = len(cells(lines[0], mark))
        widths = [len(cells(line, mark)) for line in lines[1:50]]
        alike = sum(row_width == width for row_width in widths)
        if width > 1 and alike >= max(1, 0.5 * len(widths)) and (best is None or width > best[0]):
            best = (width, mark)
    return best[1] if best else None


def cells(line: str, mark: str) -> list[str]:
    """The cells of a line, without the quotes around them."""
    if '"' not in line:
        return [cell.strip() for cell in line.split(mark)]
    parts = re.findall(rf'(?:^|{re.escape(mark)})\s*("(?:[^"]|"")*"|[^{re.escape(mark)}]*)', line)
    return [part.strip().strip('"').replace('""', '"') for part in parts]


def _named(header: list[str]) -> bool:
    """Whether these are names: no cell that has something in it is a number."""
    filled = [cell for cell in header if cell]
    return bool(filled) and not any(is_number(cell) or cell.lower() in MISSING for cell in filled)


def is_number(cell: str) -> bool:
    """Whether a cell is a number, NaN and infinity included, rather than a name with a digit in it."""
    try:
        return number(cell) is not None and not re.search(r"[a-zA-Z]{4}", cell)
    except ValueError:
        return True


def _unique(header: list[str]) -> list[str]:
    counts: Counter[str] = Counter()
    names: list[str] = []
    for index, cell in enumerate(header):
        name = cell or f"column {index + 1}"
        counts[name] += 1
        names.append(name if counts[name] == 1 else f"{name} #{counts[name]}")
    return names


def numeric(column: pa.Array, decimal_comma: bool, name: str, anomalies: Anomalies) -> pa.Array:
    """Float64, null where a cell is empty or no number."""
    text = _text(column)
    if decimal_comma:
        text = pc.replace_substring(text, ",", ".")
    text = pc.utf8_trim_whitespace(text)
    text = pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
    try:
        numbers = pc.cast(text, pa.float64())
    except pa.ArrowInvalid:
        return _parse_cells(text, name, anomalies)
    plain = numbers.drop_null()
    if len(plain) and bool(np.isinf(plain.to_numpy(zero_copy_only=False)).any()):
        return _parse_cells(text, name, anomalies)  # infinities that are spelled so stay; numbers too large become none
    return numbers


def _text(column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:  # bytes that are no UTF-8
        return pa.array(
            [None if cell is None else cell.decode("utf-8", "replace") for cell in column.to_pylist()], pa.string()
        )


def _parse_cells(text: pa.Array, name: str, anomalies: Anomalies) -> pa.Array:
    encoded = text.dictionary_encode()
    numbers: list[float | None] = []
    words = 0
    for cell in encoded.dictionary.to_pylist():
        try:
            numbers.append(number(cell))
        except TooLargeError as problem:
            anomalies.note("numbers larger than any float", "left out", f"column {name!r}: {problem}")
            numbers.append(None)
        words += numbers[-1] is None and cell.lower() not in MISSING
    if words and any(parsed is not None for parsed in numbers):
        anomalies.note("cells that are no number in a column of numbers", "left out", f"column {name!r}", words)
    return pa.array(numbers, pa.float64()).take(encoded.indices)


_BLOCK = 4 * 2**20
_GIVE_UP = 3  # blocks in which a column had no number: it is text
_COUNTERS = {"step", "iteration", "iter", "global_step", "trainer/global_step"}


def rows(path: Path, table: Layout, anomalies: Anomalies) -> Iterator[LogRows]:
    """The rows of a table, block by block."""
    last: LogRows | None = None
    for block in _blocks(path, table, anomalies):
        if last is not None:
            yield last
        last = block
    if last is not None:
        yield last if _ended(path) else _without_last_cell(last, table.names[-1], anomalies)


def _blocks(path: Path, table: Layout, anomalies: Anomalies) -> Iterator[LogRows]:
    def skip_row(row: Any) -> str:
        where = f"line {row.number:,}" if row.number is not None else ""
        anomalies.note(f"rows that do not have {row.expected_columns} cells", "left out", where)
        return "skip"

    source = _Text(path, anomalies)
    text = [f"c{index}" for index in range(len(table.names))]
    comma = table.mark == ";" and _decimal_comma(path)
    blocks_without_number: Counter[str] = Counter()
    split = next((name for name in table.names if name.lower() in SPLITS), None)
    try:
        reader = pv.open_csv(
            source,
            pv.ReadOptions(block_size=_BLOCK, column_names=text, skip_rows=table.above, use_threads=False),
            pv.ParseOptions(delimiter=table.mark, invalid_row_handler=skip_row),
            pv.ConvertOptions(
                column_types=dict.fromkeys(text, pa.binary()), strings_can_be_null=False, check_utf8=False
            ),
        )
        for batch in reader:
            columns: dict[str, pa.Array] = {}
            for name, column in zip(table.names, batch.columns, strict=True):
                if blocks_without_number[name] >= _GIVE_UP:
                    continue
                numbers = numeric(column, comma, name, anomalies)
                blocks_without_number[name] = (
                    blocks_without_number[name] + 1 if numbers.null_count == len(numbers) else 0
                )
                columns[name] = numbers
            yield LogRows(batch.num_rows, _apart(columns, split and batch.column(text[table.names.index(split)])))
    except StopIteration:
        return
    except pa.ArrowInvalid as problem:
        raise LogError(f"{path}, near byte {source.at:,}: {problem}") from problem
    finally:
        source.close()


def _apart(columns: dict[str, pa.Array], split: pa.Array | None) -> dict[str, pa.Array]:
    """Losses of rows that say of themselves that they are an evaluation, in columns with `val_` in front."""
    if split is None:
        return columns
    words = [str(cell or b"", "utf-8", "replace").strip().lower() for cell in split.to_pylist()]
    held_out = pa.array([word in HELD_OUT for word in words])
    if not pc.any(held_out).as_py():
        return columns
    nothing = pa.scalar(None, pa.float64())
    result = dict(columns)
    for name, column in columns.items():
        if "loss" in name.lower() and "val" not in name.lower():
            result[name] = pc.if_else(held_out, nothing, column)
            result[f"val_{name}"] = pc.if_else(held_out, column, nothing)
    return result


class _Text:
    """A file as valid UTF-8, whatever its encoding, that tells how far it was read."""

    closed = False

    def __init__(self, path: Path, anomalies: Anomalies) -> None:
        self._file, self._anomalies, self.at = path.open("rb"), anomalies, 0
        self._decoder = codecs.getincrementaldecoder(encoding_of(head(path, 4096)))("replace")
        self._unread = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def read(self, size: int) -> bytes:
        while len(self._unread) < size and (chunk := self._file.read(size)):
            self.at += len(chunk)
            self._anomalies.progress(self.at)
            text = self._decoder.decode(chunk)
            if "\ufffd" in text:
                where = f"near byte {self.at - len(chunk):,}"
                self._anomalies.note("characters in another encoding", "replaced by �", where, text.count("\ufffd"))
            self._unread += text.encode()
        start, self._unread = self._unread[:size], self._unread[size:]
        return start

    def close(self) -> None:
        self.closed = True
        self._file.close()


def _ended(path: Path) -> bool:
    """Whether the last line is whole: it has an end, or its last cell closes with a quote."""
    with path.open("rb") as file:
        file.seek(-min(4, path.stat().st_size), 2)
        return file.read().rstrip(b"\0")[-1:] in {b"\n", b"\r", b'"'}


def _without_last_cell(block: LogRows, name: str, anomalies: Anomalies) -> LogRows:
    column = block.columns.get(name)
    if column is None or not block.count or not column[-1].is_valid or not math.isfinite(column[-1].as_py()):
        return block
    anomalies.note("a last line without an end", "its last cell is left out, for it may be cut off", f"column {name!r}")
    cut = pa.concat_arrays([column[:-1], pa.nulls(1, pa.float64())])
    return LogRows(block.count, {**block.columns, name: cut})


def _decimal_comma(path: Path) -> bool:
    start = decoded(head(path))
    return bool(re.search(r"(?:^|;)[^\S\n]*+-?\d++,\d++[^\S\n]*+(?:;|$)", start, re.M)) and not re.search(
        r"\d\.\d", start
    )


def _read(path: Path, _key: str, anomalies: Anomalies) -> Log:
    table = layout(path)
    log = Log(rows(path, table, anomalies))
    plain = {name.lower() for name in table.names}
    if "epoch" in plain and not plain & _COUNTERS:
        log.kind = "mean of an epoch"
    return log


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
    Format("csv", "CSV (Lightning metrics.csv, Keras CSVLogger, any other)", detect, _read),
)
