"""A panel as data: lines, rules, bands and marks, independent of how it is drawn."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from steadyrun.program.supervision import Example
from steadyrun.text import counted

Steps = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NONE, NOTE, SUSPECT, FAULT = "none", "note", "suspect", "fault"
"""The state of a panel: nothing found, something unusual, something wrong."""
STEP_TIME = "step-time"
"""The key of the chart of step times, of a job of several processes."""


@dataclass(frozen=True)
class Line:
    """One thinned series. Values that are NaN, infinite, or negative on a log scale are also drawn.

    `shape` is `line` or `step` (a value holds until the next one). `role` is `main`, `muted` (one of many, without its
    own legend entry), `beside` (grey, for comparison), `faint` (the raw values of a smoothed line of the same name),
    `declared` (the configured values, drawn below the recorded ones) or `odd` (the rank that differs). Lines of one
    `kin` share a colour. After each step in `gaps` nothing was recorded for long. `total` and `not_finite` count the
    points before thinning.
    """

    name: str
    steps: Steps
    values: Floats
    shape: str = "line"
    role: str = "main"
    axis: str = "left"
    kin: str = ""
    gaps: Steps = field(default_factory=lambda: np.empty(0, np.int64))
    total: int = 0
    not_finite: int = 0

    def muted(self) -> Line:
        return replace(self, role="muted")


@dataclass(frozen=True)
class Rule:
    """A horizontal line: a baseline, a threshold. Its label is in the legend, so that it covers nothing."""

    value: float
    label: str
    style: str = "dashed"


@dataclass(frozen=True)
class Band:
    """A range from `low` to `high` at each step; two steps are enough for a constant one.

    It shows the `usual` values of the lines, or the values of all `ranks` of a job.
    """

    steps: Steps
    low: Floats
    high: Floats
    label: str
    kind: str = "usual"


@dataclass(frozen=True)
class Mark:
    """A step or a range of steps with a `fault`, `note`, `warning` or `incident`."""

    first: int
    last: int
    kind: str
    code: str
    label: str


@dataclass(frozen=True)
class AxisScale:
    """An axis: its title, whether it is logarithmic or counts integers. `top` is the least upper end.

    `ends` are its two ends if several plots share them; such plots do not zoom.
    """

    title: str
    log: bool = False
    top: float | None = None
    counts: bool = False
    ends: tuple[float, float] | None = None


@dataclass(frozen=True)
class Panel:
    """One panel: a question, the lines that answer it, and the findings.

    `missing` says how to record what the panel needs, "" if it has data. `trouble` is `none` or the most severe grade
    found; `first_fault` marks the panel of the headline. `judged` is False if no question of the panel could be
    answered. `aside` says what is not drawn.
    """

    number: int
    key: str
    title: str
    subject: str
    left: AxisScale
    lines: tuple[Line, ...] = ()
    right: AxisScale | None = None
    rules: tuple[Rule, ...] = ()
    bands: tuple[Band, ...] = ()
    marks: tuple[Mark, ...] = ()
    caption: str = ""
    aside: str = ""
    missing: str = ""
    trouble: str = NONE
    first_fault: bool = False
    judged: bool = True

    @property
    def badge(self) -> str:
        """The panel's state as a symbol and a word, for readers who do not see its colour."""
        if self.trouble == FAULT:
            return "✗ first fault" if self.first_fault else "✗ fault"
        if self.trouble == SUSPECT:
            return "▲ suspect"
        if self.trouble == NOTE:
            return "! note"
        if self.missing:
            return "? not recorded"
        return "✓ nothing found" if self.judged else "? cannot tell"


@dataclass(frozen=True)
class PanelFinding:
    """A fault, suspect or note, in words that are safe to show."""

    code: str
    name: str
    kind: str
    message: str
    meaning: str
    fix: str
    measured: str
    limits: tuple[str, ...]
    panel: int | None
    step: int | None
    leaf: bool = False
    experiment: str = ""


@dataclass(frozen=True)
class Answered:
    """A question and its answer in one line. `depth` counts the edges that led to it."""

    code: str
    name: str
    kind: str
    message: str
    depth: int = 0
    after_leaf: bool = False


@dataclass(frozen=True)
class Happened:
    """An incident: what happened at which step, and what a replay proved, or why it cannot be replayed.

    `command` replays it, `postmortem` is the path of its post-mortem inside the run directory; "" if there is none.
    """

    step: int
    kind: str
    why: str
    outcome: str
    proved: bool
    command: str = ""
    postmortem: str = ""


@dataclass(frozen=True)
class XAxis:
    """Another scale for the steps: the value at each of some steps, between which it is interpolated."""

    name: str
    unit: str
    steps: Steps
    values: Floats


@dataclass(frozen=True)
class Glance:
    """One item of the reading order: panels and a question."""

    panels: tuple[int, ...]
    asks: str


@dataclass(frozen=True)
class TrialSection:
    """A trial of the run's program: the verdict, and one small plot per change with its twins over unchanged twins.

    `how` says what was trained and measured. The plots share their axes, from step 0 to step `last` of the twins.
    """

    verdict: str
    sentence: str
    fix: str
    would_decide: str
    how: str
    last: int
    plots: tuple[Panel, ...] = ()
    rest: tuple[str, ...] = ()  # changes without a plot, in words


@dataclass(frozen=True)
class RankRow:
    """One rank, or several in the same state, in words; `kind` is the grade of what is wrong, "" if nothing is."""

    name: str
    state: str
    step: str = ""
    loss: str = ""
    seconds: str = ""
    heartbeat: str = ""
    host: str = ""
    kind: str = ""


@dataclass(frozen=True)
class RankSection:
    """The ranks of a job of several processes, odd ones first; `others` have no row, and `rest` describes them."""

    words: str
    rows: tuple[RankRow, ...]
    others: int = 0
    rest: str = ""


@dataclass(frozen=True)
class Board:
    """The whole dashboard of one run: the verdict, the answers, and the seven panels."""

    run: str
    standing: str
    verdict: str
    headline: str
    findings: tuple[PanelFinding, ...]
    walk: tuple[Answered, ...]
    remedies: tuple[str, ...]
    damage: tuple[str, ...]
    panels: tuple[Panel, ...]
    reading: tuple[Glance, ...]
    incidents: tuple[Happened, ...] = ()
    announced: tuple[str, ...] = ()
    signs: tuple[tuple[str, str], ...] = ()  # the vital signs: colour and words
    trial: TrialSection | None = None
    charts: tuple[Panel, ...] = ()  # what the program logged under names of its own
    charts_left_out: int = 0
    x_axes: tuple[XAxis, ...] = ()
    ranks: RankSection | None = None  # of a job of several processes
    learned_text: tuple[Example, ...] = ()  # examples of a language model: what is learned of them

    @property
    def chart_groups(self) -> list[tuple[str, list[Panel]]]:
        """The charts by the prefix of their names."""
        logged = [chart for chart in self.charts if chart.key != STEP_TIME]
        groups = dict.fromkeys(chart.subject for chart in logged)
        return [(group, [chart for chart in logged if chart.subject == group]) for group in groups]

    @property
    def rank_charts(self) -> list[Panel]:
        """The charts that belong to the table of ranks."""
        return [chart for chart in self.charts if chart.key == STEP_TIME]

    @property
    def incidents_to_show(self) -> list[Happened]:
        """The incidents of the first screen: proved ones first, and none that the headline is about."""
        message = self.leaf.message if self.leaf else None
        fresh = [each for each in self.incidents if message is None or message not in each.why]
        return sorted(fresh, key=lambda each: not each.proved)[: 1 if self.leaf else 2]

    @property
    def more(self) -> str:
        """How much more there is to read below the panels, such as "1 suspect, 3 notes, 98 checks"."""
        kinds = [finding.kind for finding in self.findings if not finding.leaf]
        parts = [counted(count, kind) for kind in (FAULT, SUSPECT, NOTE) if (count := kinds.count(kind))]
        parts += [counted(len(self.incidents), "incident")] if self.incidents else []
        return ", ".join([*parts, counted(len(self.walk), "check")])

    @property
    def leaf(self) -> PanelFinding | None:
        """The headline: a fault, or else a suspect."""
        return next((finding for finding in self.findings if finding.leaf), None)

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last step of all lines."""
        drawn = (*self.panels, *self.charts)
        ends = [(int(line.steps[0]), int(line.steps[-1])) for p in drawn for line in p.lines if len(line.steps)]
        return (min(first for first, _ in ends), max(last for _, last in ends)) if ends else (0, 0)
