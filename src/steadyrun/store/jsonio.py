"""JSON as steadyrun writes it: valid everywhere, so non-finite numbers are the strings "nan", "inf", "-inf"."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

LARGEST = 64 * 2**20  # largest JSON file of a run to read, in bytes
_DEEPEST = 100  # levels of nesting, far above those of our files
_LONGEST_INT = 300  # digits that a float can hold


def jsonable(value: Any) -> Any:
    """`value` as plain JSON types; other objects become their `str`."""
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
    """A number from JSON, in which "nan", "inf" and "-inf" are strings."""
    return float(value)


def regular_size(path: Path) -> int:
    """The size of a regular file; an OSError for others: a pipe would block, a device never ends."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(f"{path.name} is not a regular file")
    return status.st_size


def read_json(path: Path, largest: int = LARGEST) -> Any:
    """The content of a JSON file of a run; raises only OSError or ValueError."""
    size = regular_size(path)
    if size > largest:
        raise ValueError(f"it has {size:,} bytes, more than the limit of {largest:,}")
    with path.open("rb") as file:
        return loads(file.read(size))


def loads(data: bytes) -> Any:
    """Parse untrusted JSON; raises only ValueError."""
    try:
        content = json.loads(data, parse_int=_integer)
    except RecursionError:
        raise ValueError("nested too deeply to parse") from None
    if data.count(b"[") + data.count(b"{") > _DEEPEST and _is_deep(content):
        raise ValueError("nested too deeply to parse")
    return content


def _integer(digits: str) -> int | float:
    """An integer beyond the range of floats becomes infinite, like 1e999."""
    return int(digits) if len(digits) <= _LONGEST_INT else float(digits)


def _is_deep(content: Any) -> bool:
    level = [content]
    for _ in range(_DEEPEST):
        inner = (parent.values() if isinstance(parent, dict) else parent for parent in level)
        level = [child for children in inner for child in children if isinstance(child, dict | list)]
        if not level:
            return False
    return True


def dumps(value: Any, *, indent: int | None = None) -> str:
    return json.dumps(jsonable(value), indent=indent, allow_nan=False, ensure_ascii=False)


def encoded(text: str) -> bytes:
    """Encode as UTF-8; characters without a UTF-8 form (a file name in another encoding) are escaped."""
    return text.encode("utf-8", "backslashreplace")


def replace_file(path: Path, text: str) -> None:
    """Replace a file atomically: a reader sees the old or the new content."""
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
