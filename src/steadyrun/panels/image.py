"""All seven panels as one image, drawn with matplotlib, for reports and chats."""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from steadyrun.errors import UsageError
from steadyrun.panels import drawing
from steadyrun.panels.panel import FAULT, NOTE, SUSPECT, Board, Line, Panel

_STYLES = {"dashed": "--", "dotted": ":", "solid": "-"}
_BORDERS = {FAULT: ("#d9363e", "-", 2.2), SUSPECT: ("#d9731a", "--", 1.8), NOTE: ("#b8860b", "--", 1.4)}
_CROWDED = {4: 3, 5: 2}  # panels, and the columns of their legends
_FREE = {
    2: "lower center",
    4: "upper left",
    5: "upper left",
    6: "upper right",
}  # where a legend covers least; the default is the lower left
_FAR = 1e150  # no axis reaches further
_SHORT, _LONG = 2.2, 50  # decades
_PLACES = ((0, slice(0, 2)), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1))  # as on the page: panel 1 is wide


def save(board: Board, target: Path, only: int | None = None, dark: bool = False) -> None:
    """Write a PNG file; a clear error if matplotlib is not installed."""
    target.write_bytes(png(board, only, dark=dark))


def png(board: Board, only: int | None = None, dpi: int = 110, dark: bool = False) -> bytes:
    """The image of all seven panels, or of one, with the answer above them."""
    with _theme(dark):
        return encoded(_all(board) if only is None else _one(board, only), dpi)


@contextmanager
def _theme(dark: bool) -> Iterator[None]:
    """Draw on a dark ground for as long as the block lasts."""
    _need_matplotlib()
    from matplotlib import rc_context

    ink, ground = "#e6e9ef", "#12151b"
    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "axes.titlecolor")
    grounded = ("figure.facecolor", "axes.facecolor", "savefig.facecolor", "legend.facecolor")
    settings: Any = dict.fromkeys(inked, ink) | dict.fromkeys(grounded, ground) if dark else {}
    with rc_context(settings):
        yield


def overlay(panels: Sequence[Panel], span: tuple[int, int]) -> Any:
    """Panels side by side, two in a row."""
    rows = -(-len(panels) // 2)
    height = 0.6 + 3.8 * rows
    figure = new_figure(15.0, height)
    figure.subplots_adjust(hspace=0.5, wspace=0.18, left=0.045, right=0.97, top=1 - 0.7 / height, bottom=0.08)
    for position, panel in enumerate(panels, 1):
        draw(figure.add_subplot(rows, 2, position), panel, span)
    return figure


def encoded(figure: Any, dpi: int = 110) -> bytes:
    """A figure as PNG bytes."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # names in scripts that the font does not have
        figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


def _all(board: Board) -> Any:
    figure = new_figure(15.0, 10.5)
    grid = figure.add_gridspec(3, 3, hspace=0.62, wspace=0.24, left=0.045, right=0.965, top=0.92, bottom=0.075)
    figure.suptitle(wrapped(f"{board.run}: {board.headline}", 130, 2), x=0.045, ha="left", parse_math=False)
    for panel, cell in zip(board.panels, _PLACES, strict=True):
        draw(figure.add_subplot(grid[cell]), panel, board.span)
    _verdict(figure.add_subplot(grid[2, 2]), board)
    return figure


def _one(board: Board, number: int) -> Any:
    figure = new_figure(9.0, 5.4)
    figure.subplots_adjust(top=0.84, bottom=0.2, left=0.09, right=0.93)
    figure.suptitle(wrapped(f"{board.run}: {board.headline}", 90, 1), x=0.09, ha="left", fontsize=9, parse_math=False)
    draw(figure.add_subplot(), board.panels[number - 1], board.span)
    return figure


def new_figure(width: float, height: float) -> Any:
    """An empty figure; a clear error if matplotlib is not installed."""
    _need_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def _need_matplotlib() -> None:
    try:
        import matplotlib.backends.backend_agg  # noqa: F401
    except ImportError:
        raise UsageError('an image needs matplotlib: pip install "steadyrun[png]"') from None


def draw(axes: Any, panel: Panel, span: tuple[int, int]) -> None:
    """One panel on one pair of axes, from the first to the last step of a span."""
    colour, style, width = _BORDERS.get(panel.trouble, ("#8a8f98", "-", 0.8))
    axes.set_title(
        f"{panel.number}. {panel.title}\n{panel.badge}",
        loc="left",
        fontsize=9,
        pad=11,
        **({"color": colour} if width > 1 else {}),
    )
    for side in axes.spines.values():
        side.set(color=colour, linestyle=style, linewidth=width)
    axes.tick_params(which="both", labelsize=7)
    if panel.missing:
        axes.text(0.5, 0.5, wrapped(f"Not recorded. To record it: {panel.missing}.", 50, 5), **_middle(axes))
        axes.set(xticks=[], yticks=[])
        return
    _fill(axes, panel, span)
    decades = drawing.decades(panel) if panel.left.log else None
    if decades is not None:
        _log(axes, decades)
    axes.set_ylabel(panel.left.title, fontsize=7)
    axes.set_xlabel(wrapped(panel.caption, 78 if panel.number == 1 else 62, 3), fontsize=7, parse_math=False)
    if panel.number in _CROWDED and decades is not None and decades < _LONG:  # room for the legend above the lines
        low, high = axes.get_ylim()
        axes.set_ylim(low, high * (high / low) ** 0.45)
    corner, columns = _FREE.get(panel.number, "lower left"), _CROWDED.get(panel.number, 1)
    axes.legend(fontsize=5.5, loc=corner, framealpha=0.6, ncols=columns)


def _log(axes: Any, decades: float) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < _SHORT else (1.0,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _fill(axes: Any, panel: Panel, span: tuple[int, int]) -> None:
    for band in panel.bands:
        look = {"color": drawing.BANDS[band.kind], "alpha": drawing.OPACITIES[band.kind], "lw": 0}
        axes.fill_between(band.steps, band.low, band.high, label=_tex(band.label), **look)
    chosen = drawing.colours(panel.lines)
    right = axes.twinx() if panel.right else None
    if right is not None and panel.right is not None:
        right.set_ylim(0, (panel.right.top or 1) * 1.04)
        right.tick_params(labelsize=7)
    named: set[str] = set()
    for line, group in zip(panel.lines, drawing.groups(panel), strict=True):
        target = right if line.axis == "right" and right is not None else axes
        label = "" if group == "muted" or group in named or line.role == "faint" else line.name
        named.add(group if label else "")
        _line(target, line, drawing.colour_of(line, chosen), label, panel.left.log and target is axes)
    if not panel.left.log:
        axes.set_ylim(bottom=0, top=max(panel.left.top or 0, axes.get_ylim()[1]) or None)
    for rule in panel.rules:
        axes.axhline(rule.value, color=drawing.GREY, ls=_STYLES[rule.style], lw=1, label=_tex(rule.label))
    for mark in panel.marks:
        axes.axvline(mark.first, color=drawing.MARKS[mark.kind], lw=1.5 if mark.kind == "fault" else 0.8, ls=":")
    for step, codes, kind in drawing.labels(panel.marks, span, 0.2):
        at = {"xycoords": ("data", "axes fraction"), "xytext": (0, 2), "textcoords": "offset points"}
        axes.annotate(codes, (step, 1.0), fontsize=6, color=drawing.MARKS[kind], **at)
    axes.set_xlim(*(span if span[0] < span[1] else (span[0] - 1, span[1] + 1)))


def _line(axes: Any, line: Line, colour: str, label: str, log: bool) -> None:
    parts = drawing.cut(line, log)
    width, alpha = {"declared": (4.0, 0.4), "muted": (0.7, 0.6), "faint": (0.6, 0.35)}.get(line.role, (1.1, 1.0))
    axes.plot(
        parts.steps,
        np.clip(parts.values, 1 / _FAR if log else -_FAR, _FAR),
        color=colour,
        lw=width,
        alpha=alpha,
        label=_tex(label) if label else "_",
        drawstyle="steps-post" if line.shape == "step" else "default",
        marker="." if len(parts.steps) <= drawing.FEW or np.any(parts.lonely) else "",
        ms=3,
    )
    for (steps, _), height, sign in ((parts.not_finite, 0.955, "x"), (parts.not_positive, 0.03, "v")):
        heights = np.full(len(steps), height)
        axes.scatter(
            steps, heights, marker=sign, s=12, color=drawing.MARKS["fault"], transform=axes.get_xaxis_transform()
        )


def _verdict(axes: Any, board: Board) -> None:
    axes.set_axis_off()
    leaf = board.leaf
    parts = [board.headline, leaf.message, f"Fix: {leaf.fix}"] if leaf else [board.headline]
    parts += [f"! {finding.code}: {finding.message}" for finding in board.findings if finding.kind == NOTE]
    text = "\n\n".join(wrapped(part, 62, 5) for part in parts[:6])
    axes.text(0, 1, text, va="top", fontsize=7.5, transform=axes.transAxes, parse_math=False)


def _middle(axes: Any) -> dict[str, Any]:
    return {"ha": "center", "va": "center", "fontsize": 8, "transform": axes.transAxes, "parse_math": False}


def _tex(label: str) -> str:
    """A legend label with escaped dollar signs, which matplotlib would read as mathematics."""
    return label.replace("$", r"\$")


def wrapped(text: str, width: int, most: int) -> str:
    """Text in at most a number of lines."""
    lines = textwrap.wrap(text, width) or [""]
    return "\n".join(lines[:most]) + ("…" if len(lines) > most else "")
