"""The files of a post-mortem: Markdown, JSON and a picture with the same name, and the lesson beside the runs."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from steadyrun.errors import UsageError
from steadyrun.panels import image, p1_loss, p2_rate, p3_gradient, p4_activations, p7_classes
from steadyrun.panels.drawing import COLOURS, MARKS
from steadyrun.panels.panel import Mark, Panel
from steadyrun.postmortem.case import Case
from steadyrun.postmortem.document import Document, to_dict, write
from steadyrun.postmortem.document_markdown import inline, markdown
from steadyrun.records import Event, Series
from steadyrun.report.file_formats import dumps, escaped
from steadyrun.report.phrases import one_line
from steadyrun.signals.run_signals import Signals
from steadyrun.store.discover import plain
from steadyrun.store.jsonio import replace_file
from steadyrun.text import shown

# A small picture: the panels zoomed to the incident, and the losses of its tokens if they were captured.


_BEFORE, _AFTER = 60, 60  # steps of the window
_BINS = 40
_COLUMNS = 3
_BUILDERS = (p1_loss, p2_rate, p3_gradient, p4_activations, p7_classes)


def png(document: Document) -> bytes:
    """The image; a UsageError if matplotlib is not installed."""
    case = document.case
    panels, losses = _panels(case), np.array(case.proofs.token_losses)
    count = len(panels) + bool(len(losses))
    rows = max(1, -(-count // _COLUMNS))
    height = 0.5 + 3.5 * rows
    figure = image.new_figure(13.5, height)
    figure.subplots_adjust(hspace=0.75, wspace=0.25, left=0.05, right=0.97, top=1 - 0.85 / height, bottom=0.7 / height)
    title = one_line(f"{case.name}, step {case.moment.step} ({case.moment.kind}): {case.moment.why}")
    figure.suptitle(image.wrapped(title, 170, 1), x=0.05, y=0.985, ha="left", fontsize=9, parse_math=False)
    for position, panel in enumerate(panels, 1):
        image.draw(figure.add_subplot(rows, _COLUMNS, position), panel, _span(case))
    if len(losses):
        _histogram(figure.add_subplot(rows, _COLUMNS, count), losses, document)
    return image.encoded(figure, 100)


def _span(case: Case) -> tuple[int, int]:
    return max(0, case.moment.began - _BEFORE), case.moment.peak + _AFTER


def _panels(case: Case) -> list[Panel]:
    """The panels with data, drawn from the window only, so that nothing in it is thinned."""
    near = Signals(_Window(case, *_span(case)))
    panels = []
    for builder in _BUILDERS:
        panel = builder.build(near, case.report)
        if not panel.missing and any(len(line.steps) for line in panel.lines):
            panels.append(replace(panel, title=panel.subject, marks=_marks(panel, case)))
    return panels


def _marks(panel: Panel, case: Case) -> tuple[Mark, ...]:
    first, last = _span(case)
    at = case.moment.step
    inside = tuple(mark for mark in panel.marks if first <= mark.first <= last and mark.first != at)
    return (*inside, Mark(at, at, "fault", f"step {at}", one_line(case.moment.why)))


def _histogram(axes: Any, losses: Any, document: Document) -> None:
    finite = losses[np.isfinite(losses)]
    if len(finite):
        axes.hist(finite, bins=_BINS, color=COLOURS[0])
    level = next((symptom.value for symptom in document.symptoms if symptom.key == "pre_loss"), None)
    if isinstance(level, float):
        axes.axvline(level, color=MARKS["note"], ls=":", lw=1.2)
    usual = f"; dotted: loss before the incident, {shown(level)}" if isinstance(level, float) else ""
    lost = f", {len(losses) - len(finite)} not finite" if len(finite) < len(losses) else ""
    title = f"7. Loss per token at step {document.case.moment.step}\n{len(losses)} tokens{lost}"
    axes.set_title(title, loc="left", fontsize=9, pad=11)
    median = f"median {shown(float(np.median(finite)) + 0.0)}" if len(finite) else "none finite"
    axes.set_xlabel(f"loss per token ({median}{usual})", fontsize=7)
    axes.set_ylabel("tokens", fontsize=7)
    axes.tick_params(which="both", labelsize=7)


class _Window:
    """A window of a run; activations come from the replay if there is one."""

    def __init__(self, case: Case, first: int, last: int) -> None:
        self._case, self._first, self._last = case, first, last
        self.manifest = case.signals.manifest
        self.state = "finished"

    def names(self) -> list[str]:
        return self._case.signals.names

    def events(self, kind: str | None = None) -> list[Event]:
        events = [] if kind is None else self._case.signals.events(kind)
        return [event for event in events if event.step is not None and self._first <= event.step <= self._last]

    def series(self, name: str) -> Series:
        replayed = self._case.replayed
        better = replayed is not None and name.startswith("activation/") and replayed.has(name)
        series = replayed.raw(name) if better and replayed is not None else self._case.signals.raw(name)
        keep = (series.steps >= self._first) & (series.steps <= self._last)
        return Series(name, series.steps[keep], series.values[keep], series.times[keep])


# Section 7: one line, and the file beside the runs that collects these lines, each once.


NAME = "lessons.md"
_HEAD = "# Lessons\n\nOne line per post-mortem, written by `steadyrun postmortem`.\n\n"
_OPEN = b"- (open) "


def add(runs: Path, run: str, step: int, date: str, lesson: str) -> bool:
    """Add the lesson of one incident to `lessons.md` of a folder; return whether the file changed.

    An existing lesson stays, so that people can edit it; only a line without a cause, which an earlier version marked
    `(open)`, is replaced.
    """
    path = runs / NAME
    mark = f"<!-- steadyrun {quote(run.encode('utf-8', 'backslashreplace'), safe='')} {step} -->".encode()
    line = _line(run, step, date, lesson) + b" " + mark
    lines = path.read_bytes().split(b"\n") if path.is_file() else _HEAD.encode().split(b"\n")
    at = next((index for index, written in enumerate(lines) if mark in written), None)
    if at is None:
        while lines and not lines[-1].strip():
            lines.pop()
        lines += [b""] * (not lines or not lines[-1].startswith(b"- ")) + [line, b""]
    elif lines[at].startswith(_OPEN):
        lines[at] = line
    else:
        return False
    _replace(path, b"\n".join(lines))
    return True


def _line(run: str, step: int, date: str, lesson: str) -> bytes:
    day = f"{date}, " if date else ""
    return f"- {day}{escaped(run)}, step {step}: {inline(lesson)}".encode("utf-8", "backslashreplace")


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


FOLDER = "postmortems"


@dataclass(frozen=True)
class Written:
    """The files; `problem` says why there is no picture, "" if there is one or none was requested."""

    markdown: Path
    json: Path
    picture: Path | None
    problem: str = ""


def postmortem(
    run: str | os.PathLike[str],
    step: int | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    picture: bool = True,
) -> Written:
    """Write the post-mortem of an incident, as `steadyrun postmortem` does, and return its files.

    `step` chooses an incident of the run, by default the gravest. `out` is a folder or a file name that ends in .md, by
    default the folder `postmortems` of the run. `picture=False` leaves out the image of the panels.
    """
    return save(write(run, step), None if out is None else Path(out), picture=picture)


def place(document: Document, to: Path | None) -> Path:
    """The Markdown file: RUN/postmortems/step-….md, or as given; the others have the same name."""
    if to is None:
        return document.case.run / FOLDER / f"{document.stem}.md"
    target = to.expanduser()
    if target.is_dir():
        return target / f"{document.stem}.md"
    if target.suffix.lower() != ".md":
        raise UsageError(f"--out {to} is neither a folder nor a file name that ends in .md")
    if not target.parent.is_dir():
        raise UsageError(f"the folder of --out {to} does not exist; create it first")
    return target


def save(document: Document, to: Path | None = None, *, picture: bool = True, with_checklist: bool = False) -> Written:
    """Write the files, the JSON first, so that a Markdown file never names a missing file."""
    target = place(document, to)
    if to is None and not plain(target.parent):
        raise UsageError(
            f"{target.parent} is a symbolic link, or contains one, so nothing is written there; use --out FOLDER"
        )
    target.parent.mkdir(exist_ok=True)
    image, problem = _picture(document, target.with_suffix(".png")) if picture else (None, "it was not requested.")
    name = None if image is None else image.name
    replace_file(target.with_suffix(".json"), dumps(to_dict(document, name)) + "\n")
    path = shlex.quote(str(target.with_suffix(".json")))
    replace_file(target, markdown(document, path, name, problem, with_checklist=with_checklist))
    return Written(target, target.with_suffix(".json"), image, problem if picture else "")


def _picture(document: Document, target: Path) -> tuple[Path | None, str]:

    try:
        target.write_bytes(png(document))
    except UsageError as problem:  # matplotlib is an extra
        return None, f"{problem}; then write this document again."
    return target, ""


def add_lesson(document: Document) -> Path | None:
    """Add the lesson to `lessons.md` beside the run, and return the file.

    None if the file already has the lesson, or if no cause is proved.
    """
    case = document.case
    if not document.root.known:
        return None
    runs = case.run.resolve().parent
    changed = add(runs, case.name, case.moment.step, case.date, document.lesson)
    return runs / NAME if changed else None
