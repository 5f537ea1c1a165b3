"""JSON as steadyrun writes it: valid everywhere, so non-finite numbers are the strings "nan", "inf", "-inf"."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any


def jsonable(value: Any) -> Any:
    """`value` as plain JSON types; what has no JSON form becomes its `str`."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return jsonable(asdict(value))
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return jsonable(value.tolist())
    return str(value)


def number(value: Any) -> float:
    """A number read back from JSON, where "nan", "inf" and "-inf" stand for themselves."""
    return float(value)


def dumps(value: Any, *, indent: int | None = None) -> str:
    return json.dumps(jsonable(value), indent=indent, allow_nan=False, ensure_ascii=False)


def encoded(text: str) -> bytes:
    """UTF-8; what has no UTF-8 form (a file name in another encoding) is spelled out."""
    return text.encode("utf-8", "backslashreplace")


def replace_file(path: Path, text: str) -> None:
    """Write `text` so that a reader sees the old file or the new one, never a part."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(encoded(text))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
