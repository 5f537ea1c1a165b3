"""A slow, obvious twin of the store: rows in a Python list."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from steadyrun.records import Series
from steadyrun.store.writer import RunWriter


@dataclass
class Twin:
    """Writes every row to a `RunWriter` and remembers it."""

    writer: RunWriter
    rows: list[tuple[int, dict[str, float | None]]] = field(default_factory=list)

    def append(self, step: int, values: dict[str, float | None], table: str = "steps") -> None:
        self.writer.append(table, step, values, float(step))
        self.rows.append((step, values))

    def expected(self, name: str) -> list[tuple[int, float]]:
        return [(step, values[name]) for step, values in self.rows if values.get(name) is not None]


def new_writer(root: Path) -> RunWriter:
    writer = RunWriter(root)
    writer.save_manifest(state="running")
    return writer


def points(series: Series) -> list[tuple[int, float]]:
    return list(zip(series.steps.tolist(), series.values.tolist(), strict=True))


def same(one: list[tuple[int, float]], other: list[tuple[int, float]]) -> bool:
    """Equal, NaN counting as equal to itself."""
    return len(one) == len(other) and all(
        a[0] == b[0] and (a[1] == b[1] or (math.isnan(a[1]) and math.isnan(b[1])))
        for a, b in zip(one, other, strict=True)
    )


def only_file(root: Path, suffix: str) -> Path:
    (path,) = root.glob(f"metrics/*/*.{suffix}")
    return path
