"""Tables that a program prints (fastai, spaCy, skorch, JDE, YOLO): a line of names, then lines with as many numbers.

A new line of names begins another table. Rows that end in a progress bar are running means: the last counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from steadyrun.importers.formats.dialects.dialect import Dialect, Lines, pairs
from steadyrun.importers.log_rows import Anomalies, Log, Row
from steadyrun.importers.number_text import ANY
from steadyrun.importers.series_roles import EPOCH_LENGTH

_GAP = re.compile(r"\s{2,}|\t|\s*\|\s*")
_LOGGER = re.compile(r"^.{0,120}?\b(?:INFO|DEBUG)\]?:? ")
_FIRST = r"(?>[ \t|#]*+(?:epochs?|e|steps?|iter|iteration)[ \t|]|[ \t|#]*#[ \t|])"
_HEADER = re.compile(
    rf"^(?:.{{0,120}}?\bINFO\]?: )?(?=[^:=]*+$){_FIRST}"
    r"(?:.*?loss|(?:[ \t|]*+[A-Za-z][\w/%()@.-]*+){3,40}[\s|]*+$)",
    re.I,
)
_OF = r"\d{1,15}/\d{1,15}"
_CELL = rf"(?:\d++:\d++(?::\d++)?|{_OF}|{ANY}[GMKsm%]?|-|None)"
_ROW = re.compile(rf"^[ \t|]*+(?:{_OF}|\d++)(?:[ \t|]++{_CELL}(?=[ \t|%+:]|$))++[ \t|%+]*+(?P<bar>:\s.*)?$", re.I)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in _GAP.split(line.strip().strip("|").strip())]


def _rows(lines: Lines, anomalies: Anomalies, log: Log) -> Iterator[Row]:
    header, drawn = "", None
    for number, whole in lines:
        line = _LOGGER.sub("", whole, count=1)
        if _HEADER.match(line):
            header = line
        elif header and (match := _ROW.match(line)):
            names, cells = _table(header, line, match)
            if not names:
                anomalies.note("rows that do not have as many cells as there are names", "left out", f"line {number:,}")
                continue
            if "total" in names and not any("loss" in name.lower() for name in names):
                log.roles["loss"] = "total"
            row = _placed(names, cells, anomalies, number)
            if drawn and (not match["bar"] or drawn.get("epoch") != row.get("epoch")):
                yield drawn
            drawn = row if match["bar"] else None
            if drawn is None:
                yield row
    if drawn:
        yield drawn


def _placed(names: list[str], cells: list[str], anomalies: Anomalies, number: int) -> dict[str, float]:
    """A row; of a batch within an epoch, `40/165`, the step counts on through the epochs."""
    fields = [(name, cell.rstrip("GMKsm")) for name, cell in zip(names, cells, strict=True)]
    row = pairs([(name, cell.partition("/")[0]) for name, cell in fields if ":" not in cell], anomalies, number)
    batch = next(((name, cell) for name, cell in fields if name.lower() in _BATCH and "/" in cell), None)
    epoch = next((name for name in row if name.lower() in ("epoch", "epochs")), None)
    if epoch is not None:
        row = {"epoch": row.pop(epoch), **row}
    if batch is not None and epoch is not None:
        row["step"] = row.pop(batch[0])
        row[EPOCH_LENGTH] = float(batch[1].partition("/")[2])
    return row


_BATCH = frozenset({"batch", "iter", "iteration", "step"})


def _table(header: str, line: str, row: re.Match[str]) -> tuple[list[str], list[str]]:
    """Names and cells of a row, without the progress bar behind it."""
    return aligned(header, line[: row.start("bar")] if row["bar"] else line)


def aligned(header: str, line: str) -> tuple[list[str], list[str]]:
    """Names and cells, as many of each: names may have single spaces in them, numbers have none."""
    cells = line.replace("|", " ").split()
    for names in (_cells(header), header.replace("|", " ").strip(" #").split()):
        if len(names) == len(cells):
            return ["step" if name == "#" else name for name in names], cells
    return [], []


def _sure(lines: list[str]) -> bool:
    """Require rows with as many cells below the names."""
    header, since = "", 0
    for whole in lines:
        line = _LOGGER.sub("", whole, count=1)
        since += 1
        if _HEADER.match(line):
            header, since = line, 0
        elif header and since < _NEAR and (match := _ROW.match(line)) and _table(header, line, match)[0]:
            return True
    return False


_NEAR = 20  # lines below its names in which a table begins: warnings may come between


_RESULTS = re.compile(rf"^\s*+\d++/\d++\s++[\d.]++G(?:\s++{ANY}){{13}}\s*+$", re.I)
_RESULT_NAMES = (
    "epoch", "gpu_mem", "box_loss", "obj_loss", "cls_loss", "total_loss", "labels", "img_size", "precision", "recall",
    "mAP@.5", "mAP@.5:.95", "val/box_loss", "val/obj_loss", "val/cls_loss",
)  # fmt: skip


def _result_rows(lines: Lines, anomalies: Anomalies, _log: Log) -> Iterator[Row]:
    for number, line in lines:
        if _RESULTS.match(line):
            fields = list(zip(_RESULT_NAMES, line.split(), strict=True))
            yield pairs(
                [("epoch", fields[0][1].partition("/")[0]), ("gpu_mem", fields[1][1].rstrip("G")), *fields[2:]],
                anomalies,
                number,
            )


DIALECT = Dialect("table", "printed table (fastai, spaCy, JDE, YOLO)", _HEADER, _rows, sure=_sure)
RESULTS = Dialect("yolo-results", "results.txt of YOLOv5 or YOLOv7", _RESULTS, _result_rows, "mean of an epoch")
