"""A small picture: the panels zoomed to the incident, and the losses of its tokens where they were kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from steadyrun.panels import image, p1_loss, p2_rate, p3_gradient, p4_activations, p7_classes
from steadyrun.panels.drawing import COLOURS, MARKS
from steadyrun.panels.panel import Mark, Panel
from steadyrun.postmortem.case import Case
from steadyrun.postmortem.document import Document
from steadyrun.records import Event, Series
from steadyrun.report.phrases import one_line
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown

_BEFORE, _AFTER = 60, 60  # steps of the window
_BINS = 40
_COLUMNS = 3
_BUILDERS = (p1_loss, p2_rate, p3_gradient, p4_activations, p7_classes)


def png(document: Document) -> bytes:
    """The image; a UsageError where matplotlib is not installed."""
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
    """The panels that have something to show, made of the window alone: nothing in it is thinned away."""
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
    usual = f"; dotted: the loss before, {shown(level)}" if isinstance(level, float) else ""
    lost = f", {len(losses) - len(finite)} of them not finite" if len(finite) < len(losses) else ""
    title = f"7. Loss per token at step {document.case.moment.step}\n{len(losses)} tokens{lost}"
    axes.set_title(title, loc="left", fontsize=9, pad=11)
    middle = f"median {shown(float(np.median(finite)) + 0.0)}" if len(finite) else "none is finite"
    axes.set_xlabel(f"loss of a token ({middle}{usual})", fontsize=7)
    axes.set_ylabel("tokens", fontsize=7)
    axes.tick_params(which="both", labelsize=7)


class _Window:
    """A run as it was from one step to another; activations as the replay measured them, where there is one."""

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
