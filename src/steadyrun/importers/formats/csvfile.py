"""Tables of text: Lightning's metrics.csv, Keras' CSVLogger, any CSV or TSV.

Read in blocks, so that memory does not grow with the file.
"""

from __future__ import annotations

import codecs
import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from steadyrun.errors import LogError
from steadyrun.importers.formats.cells import numeric
from steadyrun.importers.formats.layout import Layout, detect, layout
from steadyrun.importers.formats.objects import HELD_OUT, SPLITS
from steadyrun.importers.model import Format, Log, Rows
from steadyrun.importers.reading import decoded, encoding_of, head
from steadyrun.importers.told import Told

_BLOCK = 4 * 2**20
_GIVE_UP = 3  # blocks in which a column had no number: it is text
_COUNTERS = {"step", "iteration", "iter", "global_step", "trainer/global_step"}


def rows(path: Path, table: Layout, told: Told) -> Iterator[Rows]:
    """The rows of a table, block by block."""
    last: Rows | None = None
    for each in _blocks(path, table, told):
        if last is not None:
            yield last
        last = each
    if last is not None:
        yield last if _ended(path) else _without_last_cell(last, table.names[-1], told)


def _blocks(path: Path, table: Layout, told: Told) -> Iterator[Rows]:
    def odd(row: Any) -> str:
        where = f"line {row.number:,}" if row.number is not None else ""
        told.odd(f"rows that do not have {row.expected_columns} cells", "left out", where)
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
            yield Rows(batch.num_rows, _apart(columns, split and batch.column(text[table.names.index(split)])))
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

    def __init__(self, path: Path, told: Told) -> None:
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
                self._told.odd("characters in another encoding", "replaced by �", where, text.count("\ufffd"))
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


def _without_last_cell(held: Rows, name: str, told: Told) -> Rows:
    column = held.columns.get(name)
    if column is None or not held.count or not column[-1].is_valid or not math.isfinite(column[-1].as_py()):
        return held
    told.odd("a last line without an end", "its last cell is left out, for it may be cut off", f"column {name!r}")
    cut = pa.concat_arrays([column[:-1], pa.nulls(1, pa.float64())])
    return Rows(held.count, {**held.columns, name: cut})


def _decimal_comma(path: Path) -> bool:
    start = decoded(head(path))
    return bool(re.search(r"(?:^|;)[^\S\n]*+-?\d++,\d++[^\S\n]*+(?:;|$)", start, re.M)) and not re.search(
        r"\d\.\d", start
    )


def _read(path: Path, _key: str, told: Told) -> Log:
    table = layout(path)
    log = Log(rows(path, table, told))
    plain = {name.lower() for name in table.names}
    if "epoch" in plain and not plain & _COUNTERS:
        log.kind = "mean of an epoch"
    return log


FORMAT = Format("csv", "CSV (Lightning metrics.csv, Keras CSVLogger, any other)", detect, _read)
