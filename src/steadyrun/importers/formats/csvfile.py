"""Tables of text: Lightning's metrics.csv, Keras' CSVLogger, YOLO's results.csv, exports of W&B, any CSV or TSV.

Read in blocks, so that memory does not grow with the file.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pv

from steadyrun.errors import LogError
from steadyrun.importers.formats.cells import numeric
from steadyrun.importers.model import WIDEST, Format, Log, Look, Part, Rows
from steadyrun.importers.numbers import number
from steadyrun.importers.reading import binary, decoded, encoding_of, head
from steadyrun.importers.told import Told

_BLOCK = 4 * 2**20
_GIVE_UP = 3  # blocks in which a column had no number: it is text
_WANDB = re.compile(r"(?P<run>.+) - (?P<name>.+?)(?P<end>__MIN|__MAX)?")
_YOLO = ("box_loss", "cls_loss", "dfl_loss", "obj_loss", "seg_loss", "pose_loss", "kobj_loss", "angle_loss")


def _lines(start: bytes) -> list[str]:
    """Whole lines at the beginning of a file, without comments and empty ones."""
    text = decoded(start)
    found = text.splitlines()
    whole = found if len(start) < 2**15 or len(found) < 2 else found[:-1]
    return [line for line in whole if line.strip() and not line.lstrip().startswith("#")]


def _delimiter(lines: list[str]) -> str | None:
    """What separates the cells: what the header has most of, and most rows have as often."""
    if len(lines) < 2:
        return None
    best: tuple[int, str] | None = None
    for mark in (",", "\t", ";", "|"):
        width = lines[0].count(mark)
        rows = [len(_cells(line, mark)) for line in lines[1:50]]
        alike = sum(found == len(_cells(lines[0], mark)) for found in rows)
        if width and alike >= max(1, 0.7 * len(rows)) and (best is None or width > best[0]):
            best = (width, mark)
    return best[1] if best else None


def _cells(line: str, mark: str) -> list[str]:
    if '"' not in line:
        return [cell.strip() for cell in line.split(mark)]
    parts = re.findall(rf'(?:^|{re.escape(mark)})\s*("(?:[^"]|"")*"|[^{re.escape(mark)}]*)', line)
    return [part.strip().strip('"').replace('""', '"') for part in parts]


def _named(cells: list[str]) -> bool:
    """Whether these are names: no cell that has something in it is a number."""
    given = [cell for cell in cells if cell]
    return bool(given) and not any(_is_number(cell) for cell in given)


def _is_number(cell: str) -> bool:
    try:
        return number(cell) is not None and not re.search(r"[a-zA-Z]{2}", cell)
    except ValueError:
        return True


def _detect(look: Look) -> bool:
    if binary(look.head):
        return False
    lines = _lines(look.head)
    mark = _delimiter(lines)
    if mark is None or not _named(_cells(lines[0], mark)):
        return False
    return any(_is_number(cell) for line in lines[1:20] for cell in _cells(line, mark))


def _names(path: Path) -> tuple[list[str], str, int]:
    """Names of the columns, what separates them, and how many lines lie above the header."""
    start = head(path, 2**18)
    if binary(start):
        raise LogError(f"{path} is binary, no table of text")
    lines = _lines(start)
    mark = _delimiter(lines)
    if not lines or mark is None:
        raise LogError(f"{path}: its first lines are no table (names, then rows with as many cells)")
    cells = _cells(lines[0].lstrip("\ufeff"), mark)
    if not _named(cells):
        raise LogError(f"{path}, line 1: no names of columns; the first line has to name them")
    if len(cells) > WIDEST:
        raise LogError(f"{path} has {len(cells):,} columns: this is no log of a training run")
    above = decoded(start).splitlines().index(lines[0])
    return _unique(cells), mark, above


def _unique(cells: list[str]) -> list[str]:
    met: Counter[str] = Counter()
    names: list[str] = []
    for place, cell in enumerate(cells):
        name = cell or f"column {place + 1}"
        met[name] += 1
        names.append(name if met[name] == 1 else f"{name} #{met[name]}")
    return names


# -- rows -------------------------------------------------------------------------------------------------------------


def _rows(path: Path, names: list[str], mark: str, above: int, told: Told) -> Iterator[Rows]:
    def odd(row: Any) -> str:
        where = f"line {row.number + above:,}" if row.number is not None else ""
        told.odd(f"rows that do not have {row.expected_columns} cells", "left out", where)
        return "skip"

    source = _Counted(path, told)
    encoding = encoding_of(head(path, 4))
    text = [f"c{place}" for place in range(len(names))]
    comma = mark == ";" and _decimal_comma(path)
    hopeless: Counter[str] = Counter()
    try:
        reader = pv.open_csv(
            source,
            pv.ReadOptions(block_size=_BLOCK, column_names=text, skip_rows=above + 1, use_threads=False,
                           encoding="utf-16" if encoding == "utf-16" else "utf8"),
            pv.ParseOptions(delimiter=mark, invalid_row_handler=odd),
            pv.ConvertOptions(
                column_types=dict.fromkeys(text, pa.binary()), strings_can_be_null=False, check_utf8=False
            ),
        )  # fmt: skip
        for batch in reader:
            columns: dict[str, pa.Array] = {}
            for name, column in zip(names, batch.columns, strict=True):
                if hopeless[name] >= _GIVE_UP:
                    continue
                found = numeric(column, comma, name, told)
                hopeless[name] = hopeless[name] + 1 if found.null_count == len(found) else 0
                columns[name] = found
            yield Rows(batch.num_rows, columns)
    except StopIteration:
        return
    except (pa.ArrowInvalid, UnicodeError) as problem:
        raise LogError(f"{path}, near byte {source.at:,}: {problem}") from problem


class _Counted(io.RawIOBase):
    """A file that tells how far it was read."""

    def __init__(self, path: Path, told: Told) -> None:
        self._file, self._told, self.at = path.open("rb"), told, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer)
        self.at += count
        self._told.progress(self.at)
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _decimal_comma(path: Path) -> bool:
    start = decoded(head(path))
    return bool(re.search(r"(?:^|;)\s*-?\d+,\d+\s*(?:;|$)", start, re.M)) and not re.search(r"\d\.\d", start)


# -- the formats ------------------------------------------------------------------------------------------------------


def _read(path: Path, _key: str, told: Told) -> Log:
    names, mark, above = _names(path)
    log = Log(_rows(path, names, mark, above, told))
    plain = {name.lower() for name in names}
    if "epoch" in plain and not plain & {"step", "iteration", "iter", "global_step", "trainer/global_step"}:
        log.kind = "mean of an epoch"
    return log


def _is_yolo(look: Look) -> bool:
    if not _detect(look):
        return False
    lines = _lines(look.head)
    names = _cells(lines[0], _delimiter(lines) or ",")
    return "epoch" in names and bool(_yolo_parts(names, "train"))


def _yolo_parts(names: list[str], split: str) -> tuple[str, ...]:
    parts = tuple(name for name in names if name in {f"{split}/{part}" for part in _YOLO})
    return parts if len(parts) > 1 else ()


def _read_yolo(path: Path, _key: str, told: Told) -> Log:
    names, mark, above = _names(path)
    sums = {"loss": _yolo_parts(names, "train"), "val_loss": _yolo_parts(names, "val")}
    log = Log(_rows(path, names, mark, above, told), kind="mean of an epoch")
    log.sums = {role: parts for role, parts in sums.items() if parts}
    return log


def _runs(names: list[str]) -> dict[str, dict[str, str]]:
    """Of an export of W&B: run, then column to name; without the columns of smallest and largest values."""
    runs: dict[str, dict[str, str]] = {}
    for name in names:
        found = _WANDB.fullmatch(name)
        if found and not found["end"]:
            runs.setdefault(found["run"], {})[name] = found["name"]
    return runs


def _is_wandb(look: Look) -> bool:
    if not _detect(look):
        return False
    lines = _lines(look.head)
    names = _cells(lines[0], _delimiter(lines) or ",")
    return bool(_runs(names)) and any(name.endswith(("__MIN", "__MAX")) for name in names)


def _wandb_parts(path: Path) -> list[Part]:
    return [Part(run, run) for run in _runs(_names(path)[0])]


def _read_wandb(path: Path, key: str, told: Told) -> Log:
    names, mark, above = _names(path)
    runs = _runs(names)
    mine = runs.get(key) or (next(iter(runs.values())) if len(runs) == 1 else {})
    others = {name for name in names if _WANDB.fullmatch(name) and name not in mine}
    rows = (
        Rows(each.count, {mine.get(name, name): column for name, column in each.columns.items() if name not in others})
        for each in _rows(path, names, mark, above, told)
    )
    return Log(rows)


FORMATS = (
    Format("yolo", "YOLO results.csv", _is_yolo, _read_yolo),
    Format("wandb-csv", "CSV export of Weights & Biases", _is_wandb, _read_wandb, _wandb_parts),
    Format("csv", "CSV (Lightning metrics.csv, Keras CSVLogger, any other)", _detect, _read),
)
