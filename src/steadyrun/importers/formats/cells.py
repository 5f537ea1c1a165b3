"""A column of text as numbers: Arrow's own reader where it can, ours where cells are spelled otherwise."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steadyrun.importers.numbers import MISSING, TooLargeError, number
from steadyrun.importers.told import Told


def numeric(column: pa.Array, decimal_comma: bool, name: str, told: Told) -> pa.Array:
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


def _slowly(text: pa.Array, name: str, told: Told) -> pa.Array:
    encoded = text.dictionary_encode()
    spelled: list[float | None] = []
    words = 0
    for cell in encoded.dictionary.to_pylist():
        try:
            spelled.append(number(cell))
        except TooLargeError as problem:
            told.odd("numbers larger than any float", "left out", f"column {name!r}: {problem}")
            spelled.append(None)
        words += spelled[-1] is None and cell.lower() not in MISSING
    if words and any(each is not None for each in spelled):
        told.odd("cells that are no number in a column of numbers", "left out", f"column {name!r}", words)
    return pa.array(spelled, pa.float64()).take(encoded.indices)
