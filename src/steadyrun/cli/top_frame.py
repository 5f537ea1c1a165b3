"""One frame of `steadyrun top`: the seven panels and the verdict, for any screen size."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from rich.text import Text

from steadyrun.panels import characters
from steadyrun.panels.panel import Board, Line, Panel, RankSection
from steadyrun.report.phrases import SYMBOLS
from steadyrun.text import counted

if TYPE_CHECKING:
    from steadyrun.panels.panel import Board

NAMES = {
    "loss": "loss",
    "rate": "learning rate",
    "gradient": "gradient norm",
    "activations": "activations",
    "spectral": "spectral norms",
    "capacity": "dead units",
    "classes": "loss by class",
}
_PLAIN = str.maketrans({"✓": "o", "✗": "x", "▲": "^", "●": "*", "○": ".", "…": "~", "─": "-", "•": "+"})
_INKS = ("cyan", "yellow", "green", "magenta", "blue", "white")
_VERDICTS = {"healthy": "green", "fault": "bold red", "suspect": "bold dark_orange", "cannot-tell": "cyan"}
_SIGNS = {"green": "green", "amber": "yellow", "red": "bold red", "unknown": "dim"}
_TROUBLES = {"fault": "bold red", "suspect": "dark_orange", "note": "yellow"}
_LABEL = 6  # characters of a number beside a plot
_LEAST = 4  # rows of a cell: title, two of plot, axis
_RANKS = 8  # ranks with a line of their own
_COLUMNS = {"step": "step", "loss": "loss", "seconds": "step time"}


@dataclass(frozen=True)
class Screen:
    """The size of a screen, and whether it shows only ASCII."""

    width: int
    height: int
    ascii_only: bool = False
    keys: str = ""  # what the keys do, if there is a keyboard

    def words(self, text: str) -> str:
        """Text that this screen can show."""
        return text.translate(_PLAIN).encode("ascii", "backslashreplace").decode() if self.ascii_only else text

    def fitted(self, text: str, width: int) -> str:
        """A text cut or padded to exactly this width."""
        shown = self.words(text)
        end = self.words("…")
        return f"{shown[: max(0, width - 1)]}{end}"[:width] if len(shown) > width else shown.ljust(width)


def frame(board: Board, screen: Screen) -> list[Text]:
    """The lines of a frame, at most as many and as wide as the screen."""
    across = 4 if screen.width >= 140 else 3 if screen.width >= 72 else 2 if screen.width >= 44 else 1
    down = -(-8 // across)
    ranks = list(_ranks(board.ranks, screen)) if board.ranks else []
    below = replace(screen, height=screen.height - len(ranks))
    tall = (below.height - 1) // down
    lines = [_header(board, screen), *ranks]
    lines += _grid(board, below, across, tall) if tall >= _LEAST else _list(board, below)
    return lines[: screen.height]


def _ranks(section: RankSection, screen: Screen) -> Iterator[Text]:
    """One line per rank, odd ones first; a screen of few rows, or more than eight ranks, gets a summary of the rest."""
    room = min(_RANKS, max(1, (screen.height - 1) // 3))
    rows = section.rows[:room]
    widths = {
        name: max(len(getattr(row, name)) for row in rows) for name in ("name", "state", "step", "loss", "seconds")
    }
    for row in rows:
        values = {name: getattr(row, name).rjust(width) for name, width in widths.items()}
        words = f"{row.name.ljust(widths['name'])}  {row.state.ljust(widths['state'])}"
        words += "".join(f"  {label} {values[name]}" for name, label in _COLUMNS.items() if widths[name])
        words += f"  heartbeat {row.heartbeat}" if row.heartbeat else ""
        yield Text(screen.fitted(words, screen.width), _TROUBLES.get(row.kind, ""))
    if unseen := len(section.rows) - len(rows) + section.others:
        rest = f"{counted(unseen, 'more rank')}{f' ({section.rest})' if section.rest else ''}"
        yield Text(screen.fitted(rest, screen.width), "dim")


def _header(board: Board, screen: Screen) -> Text:
    """The end of the run's path, its state, and the keys, as far as they fit."""
    keys = screen.keys if screen.width >= 50 else ""
    room = screen.width - (len(keys) + 1 if keys else 0)
    name, standing = screen.words(board.run), screen.words(f" ({board.standing})")
    left = max(1, room - len(standing))
    if len(name) > left:
        name = f"{screen.words('…')}{name[len(name) - left + 1 :]}"
    return Text.assemble((screen.fitted(name + standing, room), "bold"), (f" {keys}" if keys else "", "dim"))


def _grid(board: Board, screen: Screen, across: int, tall: int) -> Iterator[Text]:
    wide = (screen.width - (across - 1)) // across
    rest = screen.height - 1 - tall * (-(-8 // across))
    panels = list(board.panels)
    while panels:
        row, panels = panels[:across], panels[across:]
        height = tall if panels else tall + rest
        cells = [_cell(panel, board, screen, wide, height) for panel in row]
        if not panels:
            left = screen.width - len(row) * (wide + 1)
            cells.append(_verdict(board, screen, left, height) if left > 0 else [])
        yield from _beside([cell for cell in cells if cell])
        if not panels and len(row) == across:
            yield from _verdict(board, screen, screen.width, tall)


def _beside(cells: list[list[Text]]) -> Iterator[Text]:
    for parts in zip(*cells, strict=True):
        yield Text(" ").join(parts)


def _cell(panel: Panel, board: Board, screen: Screen, width: int, height: int) -> list[Text]:
    if panel.missing:
        said = textwrap.wrap(screen.words(f"Not recorded. To record it: {panel.missing}"), width)
        body = [Text(screen.fitted(line, width), "dim") for line in said[: height - 1]]
        return _filled([_title(panel, screen, width), *body], width, height)
    room = max(1, width - _LABEL - 1)
    canvas = characters.plot(panel, board.span, room, height - 2, ascii_only=screen.ascii_only)
    lines = [_title(panel, screen, width)]
    lines += [Text(f"{_label(canvas, row)} ").append_text(_inked(panel, canvas, row)) for row in range(height - 2)]
    below = characters.axis(panel, board.span, room, ascii_only=screen.ascii_only)
    return [*lines, Text(" " * (_LABEL + 1)).append_text(_marked(below))]


def _title(panel: Panel, screen: Screen, width: int) -> Text:
    last = _last(panel)
    name = screen.fitted(f"{panel.badge[0]} {panel.number} {NAMES.get(panel.key, panel.key)}", width - len(last) - 1)
    style = _TROUBLES.get(panel.trouble, "dim" if panel.missing else "bold")
    return Text.assemble((name, style), " ", last)


def _last(panel: Panel) -> str:
    """The last value of the main line, or the number of main lines."""
    front = _front(panel)
    if not front or not len(front[0].values):
        return ""
    return number(front[0].values[-1]) if len(front) == 1 or panel.number == 1 else f"{len(front)} lines"


def _front(panel: Panel) -> list[Line]:
    return [line for line in panel.lines if line.role == "main" and line.shape == "line" and line.axis == "left"]


def number(value: float) -> str:
    """A number in at most six characters."""
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    if value == 0 or 0.001 <= abs(value) < 10_000:
        return f"{value:.3g}"[:_LABEL] if abs(value) < 1000 else f"{value:.0f}"
    if -1e-99 < value < 0:
        return "-0"
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    short = f"{mantissa}e{int(exponent)}"
    return short if len(short) <= _LABEL else f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def _label(canvas: characters.Canvas, row: int) -> str:
    """The maximum beside the first row, the minimum beside the last."""
    value = canvas.high if row == 0 else canvas.low if row == len(canvas.rows) - 1 else None
    return "".rjust(_LABEL) if value is None else number(value).rjust(_LABEL)


def _inked(panel: Panel, canvas: characters.Canvas, row: int) -> Text:
    lines = [line for line in panel.lines if line.axis == "left"] or list(panel.lines)
    kin = list(dict.fromkeys(line.kin or line.name for line in lines if line.role in {"main", "faint"}))
    return _styled(
        (char, "bold red" if char == characters.NOT_FINITE else _ink(lines, kin, owner))
        for char, owner in zip(canvas.rows[row], canvas.owners[row], strict=True)
    )


def _styled(parts: Iterable[tuple[str, str]]) -> Text:
    """Characters with their styles; neighbours with the same style are merged to send less."""
    text = Text()
    for style, group in groupby(parts, key=lambda part: part[1]):
        text.append("".join(char for char, _ in group), style)
    return text


def _ink(lines: list[Line], kin: list[str], owner: int) -> str:
    if owner < 0:
        return ""
    line = lines[owner]
    if line.role == "odd":
        return "bold red"
    ink = _INKS[kin.index(line.kin or line.name) % len(_INKS)] if line.role in {"main", "faint"} else ""
    return ink if line.role == "main" else f"dim {ink}".strip()


def _marked(below: str) -> Text:
    return _styled(
        (char, "dim" if char in "-─" else "bold red" if char in "x✗" else "dark_orange" if char in "^▲" else "yellow")
        for char in below
    )


def _verdict(board: Board, screen: Screen, width: int, height: int) -> list[Text]:
    headline = f"{SYMBOLS[board.verdict]} {board.headline}"
    lines = [(line, _VERDICTS[board.verdict]) for line in textwrap.wrap(screen.words(headline), width)]
    for text, style in _details(board):
        lines += [(line, style) for line in textwrap.wrap(screen.words(text), width)]
    if len(lines) > height:
        lines = [*lines[: height - 1], (f"{lines[height - 1][0][: width - 1]}{screen.words('…')}", "")]
    return _filled([Text(screen.fitted(line, width), style) for line, style in lines], width, height)


def _details(board: Board) -> Iterator[tuple[str, str]]:
    for colour, line in board.signs:
        yield f"{'○' if colour == 'unknown' else '●'} {colour}: {line}", _SIGNS[colour]
    if board.leaf:
        yield board.leaf.message, ""
        if board.leaf.experiment:
            yield f"to decide: {board.leaf.experiment}", "green"
        yield f"fix: {board.leaf.fix}", "green"
    for finding in board.findings:
        if not finding.leaf:
            yield f"{SYMBOLS[finding.kind]} {finding.code} {finding.name}: {finding.message}", "dim"
    for remedy in board.remedies:
        yield f"to learn more: {remedy}", "dim"


def _filled(lines: list[Text], width: int, height: int) -> list[Text]:
    return [*lines, *(Text(" " * width) for _ in range(height - len(lines)))]


def _list(board: Board, screen: Screen) -> Iterator[Text]:
    """One row per panel if there is no room for larger plots; the verdict gets the rest."""
    rest = max(1, screen.height - 1 - len(board.panels))
    yield from _verdict(board, screen, screen.width, rest)
    for panel in board.panels:
        name = min(22, screen.width)
        title = _title(panel, screen, name)
        room = screen.width - name - 1
        if panel.missing or room < 4:
            yield title
            continue
        canvas = characters.plot(panel, board.span, room, 1, ascii_only=screen.ascii_only)
        yield Text.assemble(title, " ").append_text(_inked(panel, canvas, 0))
