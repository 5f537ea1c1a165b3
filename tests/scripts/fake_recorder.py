"""A recorder that keeps what it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class KeptRecord:
    """What scripts report, as a list of calls."""

    def __init__(self, path: Path = Path("run")) -> None:
        self.step = 0
        self.active = True
        self.path = path
        self.config: dict[str, Any] = {}
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.validations: list[tuple[int, float | None]] = []
        self.losses: list[tuple[int, float]] = []
        self.notes: list[str] = []
        self.taken_over: list[str] = []
        self.own_names: set[str] = set()
        self.on_end: list[Callable[[], None]] = []
        self.on_cell: list[Callable[[], None]] = []

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.logged.append((step, dict(values)))

    def val(self, loss: float | None, step: int, metrics: Mapping[str, float]) -> None:
        self.validations.append((step, loss))

    def printed_loss(self, value: float, step: int) -> None:
        self.losses.append((step, value))

    def note(self, text: str) -> None:
        self.notes.append(text)

    def take_over(self, by: str) -> None:
        self.active = False
        self.taken_over.append(by)

    def series(self, name: str) -> list[tuple[int, float]]:
        return [(step, values[name]) for step, values in self.logged if name in values]
