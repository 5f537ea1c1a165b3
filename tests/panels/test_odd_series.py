"""Series as they come: NaN, infinities, gaps, one point, none, many; names that are markup. All are drawn."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from samples import HOSTILE, asked, fault_report, question, report
from synthetic import Synthetic

from steadyrun.panels import drawing
from steadyrun.panels.board import BUILDERS, build
from steadyrun.panels.dashboard_page import page, payload, script_safe
from steadyrun.panels.image import png
from steadyrun.panels.lines import MOST, NAMED
from steadyrun.panels.panel import Board, Line
from steadyrun.panels.plotly_figure import figure
from steadyrun.questions.form import CANNOT_TELL, FAULT, PASS
from steadyrun.records import Event
from steadyrun.report.report import Report
from steadyrun.signals.run_signals import Signals
from steadyrun.trees.walker import Asked

NAN, INF = float("nan"), float("inf")
HEALTHY = report()


def board(report: Report = HEALTHY, **parts: Any) -> Board:
    return build(Signals(Synthetic(**parts)), report)


def drawn_everywhere(made: Board) -> None:
    """Every form of the board can be made, and the page's data is JSON."""
    json.loads(json.dumps(payload(made), allow_nan=False))
    assert len(page(made)) > 1_000_000
    assert png(made, dpi=40).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "values",
    [[NAN], [NAN, NAN], [3.0], [INF, 1.0, -INF], [1.0, NAN, 2.0, NAN], [0.0, 0.0, -1.0], [1e308, 1e-308], [-5.0] * 3],
)
def test_any_values(values: list[float]) -> None:
    names = ["loss", "grad_norm", "lr/0", "activation/a", "spectral_norm/b", "dead_units/a", "class_loss/x"]
    made = board(**dict.fromkeys(names, values))
    assert all(panel.lines for panel in made.panels)
    drawn_everywhere(made)


def test_no_series_at_all_says_how_to_record_them() -> None:
    made = board()
    assert all(panel.missing and not panel.lines for panel in made.panels)
    assert "class_losses" in made.panels[6].missing
    assert made.panels[0].badge == "? not recorded"
    drawn_everywhere(made)


def test_an_empty_series() -> None:
    drawn_everywhere(board(loss=[], grad_norm=[], **{"lr/0": [], "activation/a": []}))


def test_what_is_not_finite_is_drawn_at_the_edge() -> None:
    made = board(loss=[3.0, NAN, 2.0, INF, -INF, 1.0])
    (train,) = made.panels[0].lines
    assert train.not_finite == 3
    line, edge = figure(made.panels[0], made.span).data
    assert np.isnan(line.y).tolist() == [False, True, False, True, True, False]
    assert (list(edge.x), edge.text) == ([1, 3, 4], ("nan", "inf", "-inf"))
    assert edge.yaxis == "y2"


def test_what_a_log_axis_cannot_show_is_drawn_at_the_bottom() -> None:
    made = board(grad_norm=[1.0, 0.0, 2.0])
    line, edge = figure(made.panels[2], made.span).data
    assert np.isnan(line.y[1])
    assert (list(edge.x), edge.text, edge.y[0] < 0.1) == ([1], ("0.0",), True)


def test_a_gap_breaks_the_line_and_a_lonely_point_is_a_dot() -> None:
    steps = [*range(100), *range(5000, 5100)]
    (train,) = board(loss=(steps, [1.0] * 200)).panels[0].lines
    cut = drawing.cut(train, log=True)
    assert np.isnan(cut.values[list(cut.steps).index(100)])
    lonely = drawing.cut(Line("a", np.arange(3), np.array([NAN, 1.0, NAN])), log=False)
    assert lonely.lonely.tolist() == [False, True, False]


def test_sparse_samples_are_no_gaps() -> None:
    steps = [0, 1, 2, 5, 10, 20, 100, 200, 300]
    (line,) = board(**{"activation/a": (steps, [1.0] * 9)}).panels[3].lines
    assert len(line.gaps) == 0


def test_ninety_six_layers_stay_readable() -> None:
    blocks = [{"name": f"blocks.{i}", "role": "block"} for i in range(96)]
    series: dict[str, Any] = {f"activation/blocks.{i}": [1.0 + i / 96, 1.1] for i in range(96)}
    series |= {f"spectral_norm/blocks.{i}.{name}.weight": [1.0, 1.0 + i / 96] for i in range(96) for name in "abcd"}
    made = board(manifest={"blocks": blocks}, **series)
    activations, spectral = made.panels[3], made.panels[4]
    front = [line.name for line in activations.lines if line.role == "main"]
    assert len(front) == NAMED
    assert {"blocks.0", "blocks.95"} <= set(front)
    assert len(spectral.lines) == MOST
    assert spectral.aside == "150 of 384 lines are drawn, including the most unusual ones."
    assert "blocks.95.d" in [line.name for line in spectral.lines if line.role == "main"]
    assert [entry.name for entry in drawing.legend(activations)][-2:] == [
        "90 more",
        "residual blocks within 3 times of each other",
    ]
    drawn_everywhere(made)


def test_blocks_come_in_the_order_of_the_forward_pass() -> None:
    blocks = [{"name": name, "role": "block"} for name in ("embed", "blocks.2", "blocks.10", "norm")]
    series = {f"activation/{name}": [1.0] for name in ("norm", "blocks.10", "blocks.2", "embed")}
    assert [line.name for line in board(manifest={"blocks": blocks}, **series).panels[3].lines] == [
        "embed",
        "blocks.2",
        "blocks.10",
        "norm",
    ]


def test_groups_with_one_rate_are_one_line() -> None:
    alike = {"lr/0": [0.1, 0.2], "lr/1": [0.1, 0.2]}
    assert [line.name for line in board(**alike).panels[1].lines] == ["recorded"]
    lines = board(**alike, **{"lr/2": [0.2, 0.4]}).panels[1].lines
    assert [line.name for line in lines] == ["recorded, group 0, 1", "recorded, group 2"]


def test_the_band_holds_blocks_exactly_where_they_are_within_three_times() -> None:
    blocks = [{"name": name, "role": "block"} for name in "ab"]
    made = board(manifest={"blocks": blocks}, **{"activation/a": [1.0, 1.0], "activation/b": [2.9, 3.1]})
    (band,) = made.panels[3].bands
    assert (band.low[0] < 1.0, band.high[0] > 2.9) == (True, True)
    assert (band.low[1] > 1.0, band.high[1] < 3.1) == (True, True)


def test_a_fault_marks_its_panel_and_leads_its_caption() -> None:
    made = board(fault_report(), loss=[1.0] * 20, **{"lr/0": [1.0] * 20})
    rate = made.panels[1]
    assert rate.badge == "✗ first fault"
    assert rate.caption == "C3.1: level 9 above 8. (limit high changed from 5 to 8) (and 1 more)"
    assert [(mark.first, mark.kind, mark.code) for mark in rate.marks] == [(12, "fault", "C3.1"), (3, "note", "C1.2")]
    assert made.leaf is not None
    assert made.leaf.fix == "Mend it."
    assert [entry.after_leaf for entry in made.walk] == [False] * 5
    loss = figure(made.panels[0], made.span, echo=12)
    assert [shape.x0 for shape in loss.layout.shapes] == [12]


def test_events_are_marked_and_a_warning_the_walk_does_not_share() -> None:
    events = [
        Event("crash", 7, 0.0, 0, {"error": HOSTILE}),
        Event("warning", 5, 0.0, 0, {"code": "C1.1", "message": "it rises"}),
        Event("fault", 12, 0.0, 0, {"code": "C3.1", "message": "the walk says it, too"}),
    ]
    made = board(fault_report(), loss=[1.0] * 20, events=events)
    assert [(mark.kind, mark.code, mark.first) for mark in made.panels[0].marks] == [("incident", "crash", 7)]
    assert ("warning", "C1.1", 5) in [(mark.kind, mark.code, mark.first) for mark in made.panels[1].marks]
    drawn_everywhere(made)


def hostile_board() -> Board:
    fault = asked("C1.1", FAULT, message=HOSTILE, fix=HOSTILE, step=1)
    named = Asked(question(name=HOSTILE, panel=1), fault.answer, {})
    blocks = [{"name": HOSTILE, "role": "block"}]
    names = ["activation", "spectral_norm", "dead_units", "class_loss", "val_class_loss", "lr"]
    series = {f"{name}/{HOSTILE}": [1.0, NAN, 2.0] for name in names} | {"loss": [1.0, 2.0]}
    config = {"schedule": HOSTILE}
    return board(
        report(named, run=HOSTILE, state=HOSTILE, damage=(HOSTILE,)),
        config=config,
        manifest={"blocks": blocks},
        **series,
    )


def test_hostile_names_are_shown_and_do_nothing() -> None:
    made = hostile_board()
    text = page(made)
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text
    text.encode("utf-8")
    assert png(made, dpi=40).startswith(b"\x89PNG")


def test_data_ends_no_script_element() -> None:
    made = script_safe({"a": "</script><!--<script>\u2028&"})
    assert not set("<>&") & set(made)
    assert json.loads(made) == {"a": "</script><!--<script>\u2028&"}


def test_there_are_seven_panels_with_the_questions_of_the_specification() -> None:
    assert [panel.number for panel in board().panels] == [1, 2, 3, 4, 5, 6, 7]
    assert [panel.left.log for panel in board().panels] == [True, False, True, True, True, False, True]
    assert len(BUILDERS) == 7
    assert [glance.panels for glance in board().reading] == [(1,), (3,), (2,), (1,), (4, 5, 6), (7,)]


@pytest.mark.parametrize(("low", "log"), [(0.5, True), (-1.0, False), (0.0, False)])
def test_a_loss_that_is_not_positive_is_drawn_on_a_linear_scale(low: float, log: bool) -> None:
    falling = np.linspace(2.0, low, 100).clip(min=low)
    falling[50:] = low
    made = board(loss=falling, **{"class_loss/a": falling})
    assert made.panels[0].left.log == made.panels[6].left.log == log
    drawn_everywhere(made)


def test_a_panel_is_not_called_fine_where_nothing_could_be_told() -> None:
    nothing = report(asked("C2.1", CANNOT_TELL))
    made = board(nothing, **{"lr/0": [NAN, NAN]})
    assert made.panels[1].badge == "? cannot tell"
    fine = report(asked("C2.1", PASS))
    assert board(fine, **{"lr/0": [1e-3, 1e-3]}).panels[1].badge == "✓ nothing found"
