"""The rows of a table of text (CSV, TSV) in blocks, so that memory does not grow with the file."""

from __future__ import annotations

import codecs
import math
import mmap
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from steadyrun.errors import LogError
from steadyrun.importers.clean_lines import ENCODED, decoded, encoding_of, head, is_whole
from steadyrun.importers.formats.column_numbers import numeric, words
from steadyrun.importers.formats.table_columns import EVALUATIONS, SPLITS, Labels, held_out_name, label_columns
from steadyrun.importers.formats.table_layout import ENDS, HEAD, SAMPLE, Layout, cells, has_names, unique
from steadyrun.importers.log_rows import WIDEST, Anomalies, LogRows
from steadyrun.importers.series_roles import RUN_COUNT, STARTS

_BLOCK = 4 * 2**20
_GIVE_UP = 3  # blocks in which a column had no number: it is text
_TAIL = 2**16  # bytes in which the last line ends; zeros may follow it
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
    starts, labels = 0, Labels()
    for whole in blocks(path, table, anomalies):
        if last is not None:
            yield last
        block, begun = _without_headers(keep(whole), starts)
        last = _numbers(block, comma, blocks_without_number, anomalies)
        if begun is not None:
            last = LogRows(last.count, {**last.columns, STARTS: pa.array(begun, pa.float64())})
            starts = int(begun[-1]) if len(begun) else starts
        named = [words(block.columns[name]) for name in label_columns(block.columns, stages=True)]
        if named and (counts := labels.counted(named)) is not None:
            last = LogRows(last.count, {**last.columns, RUN_COUNT: pa.array(counts, pa.float64())})
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
    for split in (name for name in block.columns if name.lower() in SPLITS):
        columns = _apart(columns, block.columns[split])
    return LogRows(block.count, columns)


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
    start = head(path, HEAD)
    found = [_Section(table)]
    if encoding_of(start[:ENCODED]) not in ("utf-8", "utf-8-sig") or not (table.above and table.named):
        return found
    line = ENDS.split(decoded(start))[table.above - 1].lstrip("\ufeff")
    if table.mark not in line:
        return found
    mark = b"\n" + line[: line.find(table.mark) + 1].encode()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        at = content.find(mark, 1)
        while at >= 0 and len(found) < _MOST_SECTIONS:
            end = content.find(b"\n", at + 1)
            header = cells(content[at + 1 : len(content) if end < 0 else end].decode("utf-8", "replace"), table.mark)
            if has_names(header) and unique(header) != found[-1].layout.names and len(header) <= WIDEST:
                before = found.pop()
                found.append(_Section(before.layout, before.start, at + 1, before.lines))
                lines = before.lines + content[before.start : at + 1].count(b"\n")
                found.append(_Section(Layout(unique(header), table.mark, 1), at + 1, None, lines))
            at = content.find(mark, at + 1)
    return found


def _apart(columns: dict[str, pa.Array], split: pa.Array) -> dict[str, pa.Array]:
    """Numbers of rows that say of themselves that they are an evaluation, in columns with `val_` in front."""
    held_out = pa.array([word.lower() in EVALUATIONS for word in words(split)], pa.bool_())
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
    """A file as valid UTF-8, whatever its encoding, that knows how far it was read."""

    closed = False

    def __init__(self, path: Path, anomalies: Anomalies, start: int, end: int | None) -> None:
        self._file, self._anomalies, self.at = path.open("rb"), anomalies, start
        self._file.seek(start)
        self._end = path.stat().st_size if end is None else end
        self._decoder = codecs.getincrementaldecoder(encoding_of(head(path, ENCODED)))("replace")
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
    *before, last = ENDS.split(decoded(tail))
    return not last or is_whole(last, before[-SAMPLE:])


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
