"""The cells of a column of a text table, as numbers and as words."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steadyrun.importers.formats.table_columns import seconds
from steadyrun.importers.log_rows import Anomalies
from steadyrun.importers.number_text import MISSING, TooLargeError, number
from steadyrun.importers.series_roles import TIME, rank


def numeric(column: pa.Array, decimal_comma: bool, name: str, anomalies: Anomalies) -> pa.Array:
    """Float64, null if a cell is empty or not a number."""
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
    except pa.ArrowInvalid:  # bytes that are not UTF-8
        return pa.array(
            [None if cell is None else cell.decode("utf-8", "replace") for cell in column.to_pylist()], pa.string()
        )


def words(column: pa.Array) -> list[str]:
    """The cells of a column as text, without blanks around them."""
    trimmed = pc.utf8_trim_whitespace(_text(column))
    return [cell or "" for cell in trimmed.to_pylist()]


def _parse_cells(text: pa.Array, name: str, anomalies: Anomalies) -> pa.Array:
    encoded = text.dictionary_encode()
    numbers: list[float | None] = []
    others = 0
    dates = rank(TIME, name) is not None
    for cell in encoded.dictionary.to_pylist():
        try:
            date = seconds(cell) if dates else None
            numbers.append(number(cell) if date is None else date)
        except TooLargeError as problem:
            anomalies.note("numbers larger than any float", "left out", f"column {name!r}: {problem}")
            numbers.append(None)
        others += numbers[-1] is None and cell.lower() not in MISSING
    if others and any(parsed is not None for parsed in numbers):
        anomalies.note("cells without a number in a column of numbers", "left out", f"column {name!r}", others)
    return pa.array(numbers, pa.float64()).take(encoded.indices)
