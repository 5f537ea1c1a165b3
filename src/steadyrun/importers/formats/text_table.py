"""Tables of text (CSV, TSV): their layout, and their rows in blocks, so that memory does not grow with the file."""

from __future__ import annotations

import codecs
import math
import mmap
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from steadyrun.errors import LogError
from steadyrun.importers.clean_lines import binary, decoded, encoding_of, head, is_whole
from steadyrun.importers.formats.column_numbers import numeric, words
from steadyrun.importers.formats.jsonfile import HELD_OUT, SPLITS, held_out_name
from steadyrun.importers.log_rows import WIDEST, Anomalies, FileSample, LogRows
from steadyrun.importers.number_text import MISSING, TooLargeError, number
from steadyrun.importers.series_roles import STARTS, name_of_file, rank

_ENDS = re.compile(r"\r\n|\n|\r")
_HEAD = 2**18
_TABLES = {".csv", ".tsv"}
_SAMPLE, _FEWEST = 50, 4  # rows of numbers that are looked at before they get names; the last may be cut off
_MOST_ABOVE = 20  # lines above a table that are not part of it: settings, a title
_TAIL = 2**16  # bytes in which the last line ends; zeros may follow it


@dataclass(frozen=True)
class Layout:
    """Names of the columns, the mark between cells, and how many lines come before the rows."""

    names: list[str]
    mark: str
    above: int
    named: bool = True  # else the columns have names of ours: it is a table of numbers alone


def detect(sample: FileSample) -> bool:
    """Whether a file is a table: names, then rows with as many cells, numbers among them."""
    if binary(sample.head):
        return False
    lines = _ENDS.split(decoded(sample.head))[:-1] if len(sample.head) >= 2**15 else _ENDS.split(decoded(sample.head))
    table = _layout_of(lines, sample.path)
    if table is None:
        return sample.path.suffix.lower() in _TABLES and _mark(_data(lines)) is not None
    rows = [line for line in lines[table.above :] if line.strip()][:20]
    return any(is_number(cell) for line in rows for cell in cells(line, table.mark))


def names_of(sample: FileSample) -> list[str]:
    """The names of a table that was detected; none where it has none."""
    table = _layout_of(_ENDS.split(decoded(sample.head)), sample.path)
    return table.names if table else []


def layout(path: Path) -> Layout:
    """The layout of a file, or a clear error."""
    start = head(path, _HEAD)
    if binary(start):
        at = next((index for index, byte in enumerate(start) if byte < 9), 0)
        raise LogError(f"{path}, byte {at:,}: it is binary, no table of text")
    lines = _ENDS.split(decoded(start))
    table = _layout_of(lines, path)
    if table is None:
        if _mark(_data(lines)) is None:
            raise LogError(f"{path}, line 1: the first lines are no table (names, then rows with as many cells)")
        raise LogError(f"{path}, line 1: no names of columns; the first line has to name them, such as step,loss")
    if len(table.names) > WIDEST:
        raise LogError(f"{path}, line 1: {len(table.names):,} columns: this is no log of a training run")
    return table


def _data(lines: list[str]) -> list[str]:
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _layout_of(lines: list[str], path: Path) -> Layout | None:
    """The first line is the header; if it is numbers already, the comment right above it may be."""
    data = _data(lines)
    mark = _mark(data)
    if mark is None:
        return (_nameless(data, ",", lines.index(data[0]), path) if data else None) or _below_other_lines(lines)
    at = next(index for index, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#"))
    header = cells(lines[at], mark)
    if _named(header):
        return Layout(_unique(header), mark, at + 1)
    above = cells(lines[at - 1].strip().lstrip("#"), mark) if at else []
    if len(above) == len(header) and _named(above):
        return Layout(_unique(above), mark, at)
    return _nameless(data, mark, at, path) or _below_other_lines(lines)


def _below_other_lines(lines: list[str]) -> Layout | None:
    """The layout of a table below a few lines of something else: a line of names, then only rows of numbers."""
    filled = [at for at, line in enumerate(lines) if line.strip()][: _MOST_ABOVE + _SAMPLE]
    for nth, at in enumerate(filled[1 : _MOST_ABOVE + 1], start=1):
        below = [lines[row] for row in filled[nth + 1 : nth + _SAMPLE]]
        mark = _mark([lines[at], *below])
        header = cells(lines[at], mark) if mark else []
        rows = [cells(line, mark) for line in below[:-1]] if mark else []
        if len(rows) < _FEWEST or not (all(header) and _named(header)) or len(set(header)) < len(header):
            continue
        if all(len(row) == len(header) and 2 * sum(map(is_number, row)) > len(row) for row in rows):
            return Layout(_unique(header), mark or ",", at + 1)
    return None


def _nameless(data: list[str], mark: str, above: int, path: Path) -> Layout | None:
    """The layout of numbers alone: what counts is the step, and a file that is named after a loss begins with it."""
    stem = name_of_file(path.stem)
    loss = any(rank(role, stem) is not None for role in ("loss", "val_loss"))
    rows = [[_plain_number(cell) for cell in cells(line, mark)] for line in data[:_SAMPLE]]
    if len(rows) < _FEWEST or not (loss or path.suffix.lower() in _TABLES):
        return None
    if any(value is None or len(row) != len(rows[0]) for row in rows[:-1] for value in row):
        return None
    names = [f"column_{index + 1}" for index in range(len(rows[0]))]
    first = [row[0] or 0.0 for row in rows[:-1]]
    counts = all(value == value // 1 for value in first) and all(b > a for a, b in pairwise(first))
    if counts and len(names) > 1:
        names[0] = "step"
    if loss and not (counts and len(names) == 1):
        names[int(counts)] = stem
    return Layout(names, mark, above, named=False)


def _plain_number(cell: str) -> float | None:
    try:
        return number(cell) if is_number(cell) else None
    except TooLargeError:
        return None


def _mark(lines: list[str]) -> str | None:
    """What separates the cells: what the header has most of, and most rows have as often."""
    best: tuple[int, str] | None = None
    for mark in (",", "\t", ";", "|") if len(lines) > 1 else ():
        width = len(cells(lines[0], mark))
        again = lines[0].partition(mark)[0] + mark  # another header may have other columns
        end = next((at for at, line in enumerate(lines[1:50], 1) if line.startswith(again)), 50)
        widths = [len(cells(line, mark)) for line in lines[1:end]]
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


_BLOCK = 4 * 2**20
_GIVE_UP = 3  # blocks in which a column had no number: it is text
_MOST_SECTIONS = 1_000  # headers with other columns; each is read on its own


@dataclass(frozen=True)
class Block:
    """Some rows as they stand in the file: the columns by name, as bytes."""

    count: int
    columns: dict[str, pa.Array]

    def filtered(self, kept: list[bool]) -> Block:
        mask = pa.array(kept, pa.bool_())
        return Block(sum(kept), {name: column.filter(mask) for name, column in self.columns.items()})


@dataclass(frozen=True)
class _Section:
    """A part of a file below one header: where it begins and ends, and how many lines come before it."""

    layout: Layout
    start: int = 0
    end: int | None = None
    lines: int = 0


def rows(
    path: Path, table: Layout, anomalies: Anomalies, keep: Callable[[Block], Block] = lambda block: block
) -> Iterator[LogRows]:
    """The rows of a table as numbers, block by block; `keep` may leave rows out."""
    last: LogRows | None = None
    comma = table.mark == ";" and _decimal_comma(path)
    blocks_without_number: Counter[str] = Counter()
    starts = 0
    for whole in blocks(path, table, anomalies):
        if last is not None:
            yield last
        block, begun = _without_headers(keep(whole), starts)
        last = _numbers(block, comma, blocks_without_number, anomalies)
        if begun is not None:
            last = LogRows(last.count, {**last.columns, STARTS: pa.array(begun, pa.float64())})
            starts = int(begun[-1]) if len(begun) else starts
    if last is not None:
        yield last if _ended(path) else _without_last_cell(last, table.names[-1], anomalies)


def _without_headers(block: Block, starts: int) -> tuple[Block, np.ndarray | None]:
    """The rows that are not the header again, and how often it came before each: a program prints it when it starts."""
    name, column = next(iter(block.columns.items()), ("", pa.array([], pa.binary())))
    headers = pc.equal(column, pa.scalar(name.encode(), column.type)).to_numpy(zero_copy_only=False)
    if not np.any(headers):
        return block, None
    return block.filtered((~headers).tolist()), (starts + np.cumsum(headers))[~headers]


def _numbers(block: Block, comma: bool, blocks_without_number: Counter[str], anomalies: Anomalies) -> LogRows:
    columns: dict[str, pa.Array] = {}
    for name, column in block.columns.items():
        if blocks_without_number[name] >= _GIVE_UP:
            continue
        numbers = numeric(column, comma, name, anomalies)
        blocks_without_number[name] = blocks_without_number[name] + 1 if numbers.null_count == len(numbers) else 0
        columns[name] = numbers
    split = next((name for name in block.columns if name.lower() in SPLITS), None)
    return LogRows(block.count, _apart(columns, block.columns[split] if split else None))


def blocks(path: Path, table: Layout, anomalies: Anomalies) -> Iterator[Block]:
    """The cells of a table as they stand there, block by block."""
    for section in _sections(path, table):
        yield from _section_blocks(path, section, anomalies)


def _section_blocks(path: Path, section: _Section, anomalies: Anomalies) -> Iterator[Block]:
    def skip_row(row: Any) -> str:
        where = f"line {row.number + section.lines:,}" if row.number is not None else ""
        anomalies.note(f"rows that do not have {row.expected_columns} cells", "left out", where)
        return "skip"

    source = _Text(path, anomalies, section.start, section.end)
    table = section.layout
    text = [f"c{index}" for index in range(len(table.names))]
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
            yield Block(batch.num_rows, dict(zip(table.names, batch.columns, strict=True)))
    except StopIteration:
        return
    except pa.ArrowInvalid as problem:
        if source.at <= section.start and "Empty CSV file" in str(problem):
            return
        raise LogError(f"{path}, near byte {source.at:,}: {problem}") from problem
    finally:
        source.close()


def _sections(path: Path, table: Layout) -> list[_Section]:
    """The parts of a file to which runs with other columns, and a header of their own, were appended.

    A header is looked for by its first name, which the first header has as well. One with the same columns begins no
    part: the rows go on below it.
    """
    start = head(path, _HEAD)
    found = [_Section(table)]
    if encoding_of(start[:4096]) not in ("utf-8", "utf-8-sig") or not (table.above and table.named):
        return found
    line = _ENDS.split(decoded(start))[table.above - 1].lstrip("\ufeff")
    mark = b"\n" + line[: line.find(table.mark) + 1].encode()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        at = content.find(mark, 1)
        while at >= 0 and len(found) < _MOST_SECTIONS:
            end = content.find(b"\n", at + 1)
            header = cells(content[at + 1 : len(content) if end < 0 else end].decode("utf-8", "replace"), table.mark)
            if _named(header) and _unique(header) != found[-1].layout.names and len(header) <= WIDEST:
                before = found.pop()
                found.append(_Section(before.layout, before.start, at + 1, before.lines))
                lines = before.lines + content[before.start : at + 1].count(b"\n")
                found.append(_Section(Layout(_unique(header), table.mark, 1), at + 1, None, lines))
            at = content.find(mark, at + 1)
    return found


def _apart(columns: dict[str, pa.Array], split: pa.Array | None) -> dict[str, pa.Array]:
    """Numbers of rows that say of themselves that they are an evaluation, in columns with `val_` in front."""
    if split is None:
        return columns
    held_out = pa.array([word.lower() in HELD_OUT for word in words(split)], pa.bool_())
    if not pc.any(held_out).as_py():
        return columns
    nothing = pa.scalar(None, pa.float64())
    result = dict(columns)
    for name, column in columns.items():
        if held_out_name(name) != name:
            result[name] = pc.if_else(held_out, nothing, column)
            result[held_out_name(name)] = pc.if_else(held_out, column, nothing)
    return result


class _Text:
    """A file as valid UTF-8, whatever its encoding, that tells how far it was read."""

    closed = False

    def __init__(self, path: Path, anomalies: Anomalies, start: int, end: int | None) -> None:
        self._file, self._anomalies, self.at = path.open("rb"), anomalies, start
        self._file.seek(start)
        self._end = path.stat().st_size if end is None else end
        self._decoder = codecs.getincrementaldecoder(encoding_of(head(path, 4096)))("replace")
        self._unread = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def read(self, size: int) -> bytes:
        while len(self._unread) < size and (chunk := self._file.read(min(size, self._end - self.at))):
            self.at += len(chunk)
            self._anomalies.progress(self.at)
            text = self._decoder.decode(chunk)
            if "\ufffd" in text:
                where = f"near byte {self.at - len(chunk):,}"
                self._anomalies.note("characters in another encoding", "replaced by �", where, text.count("\ufffd"))
            if "\0" in text:
                self._anomalies.note("zero bytes", "left out", f"near byte {self.at - len(chunk):,}", text.count("\0"))
            self._unread += text.replace("\0", "").encode()
        start, self._unread = self._unread[:size], self._unread[size:]
        return start

    def close(self) -> None:
        self.closed = True
        self._file.close()


def _ended(path: Path) -> bool:
    """Whether the last line is whole: it has an end, or nothing is missing in it."""
    with path.open("rb") as file:
        file.seek(-min(_TAIL, path.stat().st_size), 2)
        tail = file.read().rstrip(b"\0")
    *before, last = _ENDS.split(decoded(tail))
    return not last or is_whole(last, before[-_SAMPLE:])


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
