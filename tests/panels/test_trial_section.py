"""The dashboard's section of a trial: made-up trials, damaged ones, any JSON, and a real one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from kept_trials import ANY_JSON, MESSAGE, ODD_TRIALS, curve, keep, kept, row, tried_run
from samples import HOSTILE, report
from synthetic import Synthetic

from steadyrun.panels.board import board_of, build
from steadyrun.panels.dashboard_page import fragment, page, payload
from steadyrun.panels.notebook import Dashboard
from steadyrun.panels.panel import FAULT, Board, TrialSection
from steadyrun.panels.trial_plots import CHANGED, FIRST, MOST, RECORDED, UNCHANGED
from steadyrun.signals.run_signals import Signals
from steadyrun.store.trial_record import parsed, trial_record


def board(content: dict[str, Any] | None, **series: Any) -> Board:
    trial = None if content is None else parsed(content)
    return build(Signals(Synthetic(**series or {"loss": [3.0 - step / 100 for step in range(150)]})), report(), trial)


def section(content: dict[str, Any], **series: Any) -> TrialSection:
    made = board(content, **series).trial
    assert made is not None
    return made


def drawn(content: dict[str, Any]) -> TrialSection:
    """The section; its HTML and its figures can be made, and no markup of the file gets through."""
    made = board(content)
    data = json.dumps(payload(made), allow_nan=False)
    html = fragment("trial", made)
    html.encode()
    tags = set(re.findall(r"</?([a-z0-9]+)", html))
    assert tags <= {"div", "h2", "h3", "p", "strong", "span", "article", "details", "summary", "ul", "li"}
    assert "<script" not in html
    assert "<script" not in data
    assert made.trial is not None
    return made.trial


def test_a_run_without_a_trial_has_no_section() -> None:
    made = board(None)
    assert made.trial is None
    assert fragment("trial", made).strip() == ""
    assert [panel["number"] for panel in payload(made)["panels"]] == list(range(1, 8))


def test_the_change_that_decided_comes_first_then_by_gain() -> None:
    made = drawn(kept())
    assert [plot.title for plot in made.plots] == [
        "The learning rate divided by 10: better by 52%, 47% to 58%",
        "Plain SGD in the optimizer's place: better by 60%, 55% to 66%",
        "No weight decay: better by 0.1%, -4.9% to 6.1%",
        "A longer warmup: worse by 30%, 24% to 35%",
        "The learning rate times 10: given up at step 25: far behind",
    ]
    assert made.sentence == f"The trial found a fault. T{MESSAGE[1:]}"
    assert [plot.trouble == FAULT for plot in made.plots] == [True, False, False, False, False]
    assert [plot.number for plot in made.plots] == list(range(FIRST, FIRST + 5))
    assert made.plots[0].caption == "2 seeds, ends at 1"


def test_twins_are_drawn_over_the_unchanged_ones_and_the_run_s_own_loss() -> None:
    plot = section(kept()).plots[0]
    assert [line.name for line in plot.lines] == [RECORDED, UNCHANGED, UNCHANGED, CHANGED, CHANGED]
    recorded = plot.lines[0]
    assert (recorded.steps[0], recorded.steps[-1]) == (0, 100)
    assert plot.lines[-1].steps.tolist() == [0, 25, 50, 100]
    assert plot.lines[-1].values.tolist() == [3.0, 2.0, 1.2, 1.2]  # of the split that decided


def test_all_plots_have_the_same_axes_and_a_twin_that_diverges_does_not_stretch_them() -> None:
    made = board(kept())
    assert made.trial is not None
    (ends,) = {plot.left.ends for plot in made.trial.plots}
    assert ends is not None
    assert ends[0] < 1.0
    assert 3.0 < ends[1] < 7.0
    layouts = [panel["figure"]["layout"] for panel in payload(made)["panels"] if panel["number"] >= FIRST]
    axes = {json.dumps([layout[key]["range"] for key in ("xaxis", "yaxis")]) for layout in layouts}
    assert len(axes) == 1
    assert all(layout["xaxis"]["fixedrange"] and layout["yaxis"]["fixedrange"] for layout in layouts)


def test_twins_from_a_checkpoint_lie_over_the_steps_behind_it() -> None:
    made = section(kept(start="the checkpoint before step 40"))
    recorded = made.plots[0].lines[0]
    assert (recorded.steps[0], recorded.steps[-1], recorded.values[0]) == (0, 100, 3.0 - 40 / 100)
    assert "from the checkpoint before step 40" in made.how
    beyond = section(kept(start="the checkpoint before step 4000"))
    assert RECORDED not in [line.name for line in beyond.plots[0].lines]


def test_a_run_without_a_loss_has_twins_all_the_same() -> None:
    assert RECORDED not in [line.name for line in section(kept(), grad_norm=[1.0]).plots[0].lines]


def test_twelve_are_drawn_and_the_rest_is_listed() -> None:
    names = [f"change {place}" for place in range(20)]
    rows = [row(name, name, place / 20) for place, name in enumerate(names)]
    curves = [curve(name, [3.0, 2.0, 1.0, 1.0]) for name in names]
    made = drawn(kept(rows=rows, curves=curves, factor="change 3"))
    assert len(made.plots) == MOST
    assert [plot.title.partition(":")[0] for plot in made.plots[:3]] == ["Change 3", "Change 19", "Change 18"]
    assert len(made.rest) == 8
    assert made.rest[-1] == "Change 0: no difference, -5.0% to 6.0%"
    assert "8 more changes" in fragment("trial", board(kept(rows=rows, curves=curves)))


@pytest.mark.parametrize(
    ("verdict", "begins"),
    [
        ("clear", "The trial found nothing wrong. "),
        ("improvement", "The trial found nothing wrong, but one change is better. "),
        ("undecided", "The trial is undecided. "),
        ("whatever", "The trial is undecided. "),
    ],
)
def test_every_verdict_in_words(verdict: str, begins: str) -> None:
    made = drawn(kept(verdict=verdict, would_decide="8 seeds would show it", fix="Divide it by ten."))
    assert made.sentence.startswith(begins)
    html = fragment("trial", board(kept(verdict=verdict, would_decide="8 seeds would show it")))
    assert "To decide:" in html
    assert not any(plot.trouble == FAULT for plot in made.plots)


def test_negative_losses_have_a_linear_axis() -> None:
    curves = [curve("own", [-1.0, -2.0, -3.0, -3.5]), curve("sgd", [-1.0, -3.0, -5.0, -6.0])]
    made = drawn(kept(curves=curves))
    assert made.plots[0].left.log is False
    assert made.plots[0].left.ends is not None
    assert made.plots[0].left.ends[0] < -6.0


def test_hostile_names_are_only_shown() -> None:
    rows = [row(HOSTILE, HOSTILE, 0.5, note=HOSTILE), row("long", "x" * 100_000, 0.1)]
    curves = [curve(HOSTILE, [3.0, 2.0, 1.0, 1.0]), curve("long", [1.0] * 4)]
    made = drawn(kept(rows=rows, curves=curves, message=HOSTILE, fix=HOSTILE, would_decide=HOSTILE, factor=HOSTILE))
    assert len(made.plots) == 2
    assert all(len(plot.title) < 500 for plot in made.plots)
    Dashboard(board(kept(message=HOSTILE)))._trial().encode()


DAMAGED: dict[str, Any] = {
    "no rows": {"rows": None},
    "rows of numbers": {"rows": [1, "a", None, []]},
    "no curves": {"curves": {}},
    "a curve without marks": {"curves": [{"factor": "sgd", "losses": {"held": [1.0]}}]},
    "marks that are no steps": {"curves": [curve("sgd", [1.0] * 4, marks=[-1, 2**80, "a", True])]},
    "losses of another split": {"measured_on": "validation"},
    "a split that is no text": {"measured_on": ["held"]},
    "losses that are no list": {"curves": [curve("sgd", []) | {"losses": {"held": "abcd"}}]},
    "only values that are not finite": {"curves": [curve("sgd", ["nan", "inf", "-inf", "nan"])]},
    "huge values": {"curves": [curve("sgd", [1e308, 1e-308, 1e300, 5e-324]), curve("own", [-1e308, 1e308, 0, 0])]},
    "a gain that is no gain": {"rows": [row("sgd", "a", None, gain={"mean": "nan", "low": [], "high": None})]},
    "an infinite gain": {"rows": [row("sgd", "a", None, gain={"mean": "inf", "low": "inf", "high": "inf"})]},
    "no message": {"message": 7, "fix": None, "would_decide": {}},
    "thousands of rows": {"rows": [row(f"r{place}", "a", 0.1) for place in range(5000)]},
    "thousands of marks": {"curves": [curve("sgd", [1.0] * 20_000, marks=list(range(20_000)))]},
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_trial_is_shown_as_far_as_it_can_be_read(name: str) -> None:
    made = drawn(kept(**DAMAGED[name]))
    assert made.sentence
    assert len(made.rest) <= 300
    assert all(len(line.steps) <= 500 for plot in made.plots for line in plot.lines)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "7", '{"schema": 2, "verdict": "fault"}', '{"schema": 1}', "[" * 9999]
)
def test_what_is_no_trial_is_none(tmp_path: Path, content: str) -> None:
    assert trial_record(keep(tmp_path, content)) is None
    (tmp_path / "trial.json").unlink()
    (tmp_path / "trial.json").mkdir()
    assert trial_record(tmp_path) is None


@settings(max_examples=60, deadline=None)
@given(content=ODD_TRIALS)
def test_any_content_is_drawn(content: dict[str, Any]) -> None:
    drawn(json.loads(json.dumps(content)))


@settings(max_examples=60, deadline=None)
@given(content=ANY_JSON)
def test_any_json_in_the_place_of_everything(content: Any) -> None:
    drawn({key: value if key in ("schema", "verdict") else content for key, value in kept().items()})


def test_a_real_trial_on_a_page_that_needs_nothing_else(tmp_path: Path) -> None:
    tried = tried_run(tmp_path / "run")
    made = board_of(tmp_path / "run")
    assert made.trial is not None
    assert made.trial.sentence.endswith(tried.verdict.message[1:])
    assert {"The learning rate divided by 10", "The learning rate times 3"} <= {
        plot.title.partition(":")[0] for plot in made.trial.plots
    }
    assert made.trial.plots[0].lines[0].name == RECORDED
    text = page(made)
    body = text.partition("<main>")[2].partition('<script type="application/json"')[0]
    assert body.count('class="panel change') == len(made.trial.plots)
    assert not re.search(r"""(?:src|href)=["'](?!#)""", body)
    assert "default-src &#39;none&#39;" in text
    assert 'id="trial"' not in page(made, only=1)
    assert "The trial" in Dashboard(made)._repr_html_()
