"""Named numbers out of single lines, while a program prints them: the general dialect without look-ahead."""

from __future__ import annotations

from steadyrun.importers.clean_lines import plain
from steadyrun.importers.formats.dialects.joined_rows import separate
from steadyrun.importers.formats.dialects.names_and_numbers import LineReader
from steadyrun.importers.formats.dialects.row_places import AXIS
from steadyrun.importers.log_rows import Anomalies, Row
from steadyrun.importers.number_text import unwrapped
from steadyrun.importers.other_languages import in_english


class LiveLines:
    """Reads one stream of lines; titles such as `Validation:` hold for the lines below them."""

    def __init__(self) -> None:
        self._reader = LineReader(Anomalies())
        self._number = 0
        self._held = 0  # the step of what the reader keeps until the next line has come

    def values(self, line: str, step: int) -> list[tuple[dict[str, float], int]]:
        """What the lines so far say, without epoch and step of their own; each with the step at which it was printed.

        A progress bar and a block of indented lines are whole when the next line has come.
        """
        self._number += 1
        shown = unwrapped(in_english(plain(line)))
        if not shown.strip():
            return []
        return [placed for part in separate(shown) for placed in self._placed(part, step)]

    def ended(self) -> list[tuple[dict[str, float], int]]:
        """What is left at the end."""
        return [(_named(row), self._held) for row in self._reader.ended()]

    def _placed(self, line: str, step: int) -> list[tuple[dict[str, float], int]]:
        reader = self._reader
        bar, block = reader.bar, reader.block
        rows = list(reader.rows(self._number, line))
        block_ended = bool(block) and reader.block is not block
        kept = ((bar is not None and row is bar[1]) or (block_ended and index == 0) for index, row in enumerate(rows))
        placed = [(_named(row), self._held if held else step) for row, held in zip(rows, kept, strict=True)]
        if reader.bar is not bar or reader.block:
            self._held = step
        return placed


def _named(row: Row) -> dict[str, float]:
    return {name: value for name, value in row.items() if name not in AXIS}
