"""Named numbers out of single lines, while a program prints them: the general dialect without look-ahead."""

from __future__ import annotations

from steadyrun.importers.clean_lines import plain
from steadyrun.importers.formats.dialects.joined_rows import separate
from steadyrun.importers.formats.dialects.names_and_numbers import AXIS, LineReader
from steadyrun.importers.log_rows import Anomalies
from steadyrun.importers.number_text import unwrapped
from steadyrun.importers.other_languages import in_english


class LiveLines:
    """Reads one stream of lines; titles such as `Validation:` hold for the lines below them."""

    def __init__(self) -> None:
        self._reader = LineReader(Anomalies())
        self._number = 0

    def values(self, line: str) -> list[dict[str, float]]:
        """What a line says, without its epoch and step. A progress bar counts when the next line has come."""
        self._number += 1
        shown = unwrapped(in_english(plain(line)))
        if not shown.strip():
            return []
        rows = [row for part in separate(shown) for row in self._reader.rows(self._number, part)]
        return [_named(row) for row in rows]

    def ended(self) -> list[dict[str, float]]:
        """What is left at the end."""
        return [_named(row) for row in self._reader.ended()]


def _named(row: object) -> dict[str, float]:
    assert isinstance(row, dict)
    return {name: value for name, value in row.items() if name not in AXIS}
