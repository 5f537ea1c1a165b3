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
from steadyrun.importers.anomalies import Anomalies
from steadyrun.importers.formats.objects import HELD_OUT, SPLITS
from steadyrun.importers.log_lines import binary, decoded, encoding_of, head
from steadyrun.importers.log_rows import WIDEST, FileSample, Format, Log, LogRows
from steadyrun.importers.number_text import MISSING, TooLargeError, number

# How a table of text is laid out: what separates its cells, where its names stand, where its rows begin.


_ENDS = re.compile(r"\r\n|\n|\r")
_HEAD = 2**18


@dataclass(frozen=True)
class Layout:
    """Names of the columns, the mark between cells, and how many lines come before the rows."""

    names: list[str]
    mark: str
    above: int


def detect(look: FileSample) -> bool:
    """Whether a file is a table: names, then rows with as many cells, numbers among them."""
    if binary(look.head):
        return False
    lines = _ENDS.split(decoded(look.head))[:-1] if len(look.head) >= 2**15 else _ENDS.split(decoded(look.head))
    found = _found(lines)
    if found is None:
        return look.path.suffix.lower() in {".csv", ".tsv"} and _mark(_data(lines)) is not None
    rows = [line for line in lines[found.above :] if line.strip()][:20]
    return any(is_number(cell) for line in rows for cell in cells(line, found.mark))


def names_of(look: FileSample) -> list[str]:
    """The names of a table that was detected; none where it has none."""
    found = _found(_ENDS.split(decoded(look.head)))
    return found.names if found else []


def layout(path: Path) -> Layout:
    """The layout of a file, or a clear error."""
    start = head(path, _HEAD)
    if binary(start):
        at = next((place for place, byte in enumerate(start) if byte < 9), 0)
        raise LogError(f"{path}, byte {at:,}: it is binary, no table of text")
    lines = _ENDS.split(decoded(start))
    found = _found(lines)
    if found is None:
        if _mark(_data(lines)) is None:
            raise LogError(f"{path}, line 1: the first lines are no table (names, then rows with as many cells)")
        raise LogError(f"{path}, line 1: no names of columns; the first line has to name them, such as step,loss")
    if len(found.names) > WIDEST:
        raise LogError(f"{path}, line 1: {len(found.names):,} columns: this is no log of a training run")
    return found


def _data(lines: list[str]) -> list[str]:
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _found(lines: list[str]) -> Layout | None:
    """The first line is the header; where it is numbers already, the comment right above it may be."""
    mark = _mark(_data(lines))
    if mark is None:
        return None
    at = next(place for place, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#"))
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
        rows = [len(cells(line, mark)) for line in lines[1:50]]
        alike = sum(found == width for found in rows)
        if width > 1 and alike >= max(1, 0.5 * len(rows)) and (best is None or width > best[0]):
            best = (width, mark)
    return best[1] if best else None


def cells(line: str, mark: str) -> list[str]:
    """The cells of a line, without the quotes around them."""
    if '"' not in line:
        return [cell.strip() for cell in line.split(mark)]
    parts = re.findall(rf'(?:^|{re.escape(mark)})\s*("(?:[^"]|"")*"|[^{re.escape(mark)}]*)', line)
    return [part.strip().strip('"').replace('""', '"') for part in parts]


def _named(found: list[str]) -> bool:
    """Whether these are names: no cell that has something in it is a number."""
    given = [cell for cell in found if cell]
    return bool(given) and not any(is_number(cell) or cell.lower() in MISSING for cell in given)


def is_number(cell: str) -> bool:
    """Whether a cell is a number, NaN and infinity included, rather than a name with a digit in it."""
    try:
        return number(cell) is not None and not re.search(r"[a-zA-Z]{4}", cell)
    except ValueError:
        return True


def _unique(found: list[str]) -> list[str]:
    met: Counter[str] = Counter()
    names: list[str] = []
    for place, cell in enumerate(found):
        name = cell or f"column {place + 1}"
        met[name] += 1
        names.append(name if met[name] == 1 else f"{name} #{met[name]}")
    return names


# A column of text as numbers: Arrow's own reader where it can, ours where cells are spelled otherwise.


def numeric(column: pa.Array, decimal_comma: bool, name: str, told: Anomalies) -> pa.Array:
    """Float64, null where a cell is empty or no number."""
    text = _text(column)
    if decimal_comma:
        text = pc.replace_substring(text, ",", ".")
    text = pc.utf8_trim_whitespace(text)
    text = pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
    try:
        found = pc.cast(text, pa.float64())
    except pa.ArrowInvalid:
        return _slowly(text, name, told)
    plain = found.drop_null()
    if len(plain) and bool(np.isinf(plain.to_numpy(zero_copy_only=False)).any()):
        return _slowly(text, name, told)  # infinities that are spelled so stay; numbers too large become none
    return found


def _text(column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:  # bytes that are no UTF-8
        return pa.array(
            [None if cell is None else cell.decode("utf-8", "replace") for cell in column.to_pylist()], pa.string()
        )


def _slowly(text: pa.Array, name: str, told: Anomalies) -> pa.Array:
    encoded = text.dictionary_encode()
    spelled: list[float | None] = []
    words = 0
    for cell in encoded.dictionary.to_pylist():
        try:
            spelled.append(number(cell))
        except TooLargeError as problem:
            told.note("numbers larger than any float", "left out", f"column {name!r}: {problem}")
            spelled.append(None)
        words += spelled[-1] is None and cell.lower() not in MISSING
    if words and any(each is not None for each in spelled):
        told.note("cells that are no number in a column of numbers", "left out", f"column {name!r}", words)
    return pa.array(spelled, pa.float64()).take(encoded.indices)


_BLOCK = 4 * 2**20
_GIVE_UP = 3  # blocks in which a column had no number: it is text
_COUNTERS = {"step", "iteration", "iter", "global_step", "trainer/global_step"}


def rows(path: Path, table: Layout, told: Anomalies) -> Iterator[LogRows]:
    """The rows of a table, block by block."""
    last: LogRows | None = None
    for each in _blocks(path, table, told):
        if last is not None:
            yield last
        last = each
    if last is not None:
        yield last if _ended(path) else _without_last_cell(last, table.names[-1], told)


def _blocks(path: Path, table: Layout, told: Anomalies) -> Iterator[LogRows]:
    def odd(row: Any) -> str:
        where = f"line {row.number:,}" if row.number is not None else ""
        told.note(f"rows that do not have {row.expected_columns} cells", "left out", where)
        return "skip"

    source = _Text(path, told)
    text = [f"c{place}" for place in range(len(table.names))]
    comma = table.mark == ";" and _decimal_comma(path)
    hopeless: Counter[str] = Counter()
    split = next((name for name in table.names if name.lower() in SPLITS), None)
    try:
        reader = pv.open_csv(
            source,
            pv.ReadOptions(block_size=_BLOCK, column_names=text, skip_rows=table.above, use_threads=False),
            pv.ParseOptions(delimiter=table.mark, invalid_row_handler=odd),
            pv.ConvertOptions(
                column_types=dict.fromkeys(text, pa.binary()), strings_can_be_null=False, check_utf8=False
            ),
        )
        for batch in reader:
            columns: dict[str, pa.Array] = {}
            for name, column in zip(table.names, batch.columns, strict=True):
                if hopeless[name] >= _GIVE_UP:
                    continue
                found = numeric(column, comma, name, told)
                hopeless[name] = hopeless[name] + 1 if found.null_count == len(found) else 0
                columns[name] = found
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

    def __init__(self, path: Path, told: Anomalies) -> None:
        self._file, self._told, self.at = path.open("rb"), told, 0
        self._decoder = codecs.getincrementaldecoder(encoding_of(head(path, 4096)))("replace")
        self._held = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def read(self, size: int) -> bytes:
        while len(self._held) < size and (chunk := self._file.read(size)):
            self.at += len(chunk)
            self._told.progress(self.at)
            text = self._decoder.decode(chunk)
            if "\ufffd" in text:
                where = f"near byte {self.at - len(chunk):,}"
                self._told.note("characters in another encoding", "replaced by �", where, text.count("\ufffd"))
            self._held += text.encode()
        given, self._held = self._held[:size], self._held[size:]
        return given

    def close(self) -> None:
        self.closed = True
        self._file.close()


def _ended(path: Path) -> bool:
    """Whether the last line is whole: it has an end, or its last cell closes with a quote."""
    with path.open("rb") as file:
        file.seek(-min(4, path.stat().st_size), 2)
        return file.read().rstrip(b"\0")[-1:] in {b"\n", b"\r", b'"'}


def _without_last_cell(held: LogRows, name: str, told: Anomalies) -> LogRows:
    column = held.columns.get(name)
    if column is None or not held.count or not column[-1].is_valid or not math.isfinite(column[-1].as_py()):
        return held
    told.note("a last line without an end", "its last cell is left out, for it may be cut off", f"column {name!r}")
    cut = pa.concat_arrays([column[:-1], pa.nulls(1, pa.float64())])
    return LogRows(held.count, {**held.columns, name: cut})


def _decimal_comma(path: Path) -> bool:
    start = decoded(head(path))
    return bool(re.search(r"(?:^|;)[^\S\n]*+-?\d++,\d++[^\S\n]*+(?:;|$)", start, re.M)) and not re.search(
        r"\d\.\d", start
    )


def _read(path: Path, _key: str, told: Anomalies) -> Log:
    table = layout(path)
    log = Log(rows(path, table, told))
    plain = {name.lower() for name in table.names}
    if "epoch" in plain and not plain & _COUNTERS:
        log.kind = "mean of an epoch"
    return log


FORMAT = Format("csv", "CSV (Lightning metrics.csv, Keras CSVLogger, any other)", detect, _read)
