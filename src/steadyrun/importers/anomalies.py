"""What was odd about a log: counted while it is read, told once at the end, never silently mended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Oddity:
    """One kind of thing that was odd, how often, and where first."""

    what: str
    done: str
    count: int = 0
    first: str = ""

    def __str__(self) -> str:
        where = f" (first: {self.first})" if self.first else ""
        return (
            f"{self.count:,} times: {self.what}{where}: {self.done}"
            if self.count > 1
            else f"{self.what}{where}: {self.done}"
        )


@dataclass
class Anomalies:
    """Collects oddities, and passes on how far reading has come."""

    progress: Callable[[int], None] = lambda _bytes: None
    oddities: dict[str, Oddity] = field(default_factory=dict)

    def note(self, what: str, done: str, where: str = "", count: int = 1) -> None:
        """`what` was met (at `where`) and `done` was done about it."""
        known = self.oddities.setdefault(what, Oddity(what, done))
        if not known.count:
            known.first = where
        known.count += count

    def lines(self) -> list[str]:
        return [str(oddity) for oddity in self.oddities.values()]
