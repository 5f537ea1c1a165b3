"""A page that takes every patch shows what a page shows that begins anew."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kept_trials import keep, kept

import steadyrun
from steadyrun.live import page_patches
from steadyrun.live.followed_run import Watch
from steadyrun.panels.board import board_of
from steadyrun.panels.thinning import MOST, Lens, chosen, through


def decoded(value: Any) -> Any:
    if isinstance(value, dict) and "bdata" in value:
        return np.frombuffer(base64.b64decode(value["bdata"]), value["dtype"]).tolist()
    if isinstance(value, dict):
        return {key: decoded(item) for key, item in value.items()}
    return [decoded(item) for item in value] if isinstance(value, list) else value


class Page:
    """What live.js keeps."""

    def __init__(self, data: str) -> None:
        content = decoded(json.loads(data))
        self.figures = {panel["number"]: panel["figure"] for panel in content["panels"]}
        self.parts, self.span = content["parts"], content["span"]
        self.added = self.replaced = 0

    def take(self, data: str) -> None:
        content = decoded(json.loads(data))
        self.span = content["span"]
        self.parts |= content["parts"]
        for panel in content["panels"]:
            if "figure" in panel:
                self.figures[panel["number"]] = panel["figure"]
                continue
            figure = self.figures[panel["number"]]
            for index, change in panel["traces"].items():
                self._change(figure["data"], int(index), change)
            figure["layout"] = panel.get("layout", figure["layout"])

    def _change(self, traces: list[Any], index: int, change: Any) -> None:
        if "trace" in change:
            traces[index] = change["trace"]
            self.replaced += 1
        else:
            for key in ("x", "y"):
                traces[index][key] = traces[index][key] + change["add"][key]
            self.added += 1


def same(page: Page, now: page_patches.Shown) -> None:
    anew = Page(page_patches.dumps(page_patches.whole(now)))
    assert json.dumps(page.figures, sort_keys=True) == json.dumps(anew.figures, sort_keys=True)
    assert (page.parts, page.span) == (anew.parts, anew.span)


def test_patches_add_up_to_the_whole(tmp_path: Path) -> None:
    run = steadyrun.record(tmp_path / "run", config={"lr_max": 0.1}, flush_steps=1)
    run.log(loss=3.0, lr=0.1)
    watch = Watch(tmp_path / "run", "run")
    board = watch.look()
    assert board is not None
    now = page_patches.shown(board)
    page = Page(page_patches.dumps(page_patches.whole(now)))
    for step in range(1, 60):
        run.log(loss=float("nan") if step in {20, 21} else 3.0 / step, lr=0.1, grad_norm=float(step))
        if step % 10 == 0:
            run.val(2.0)
        board = watch.look()
        assert board is not None
        before, now = now, page_patches.shown(board)
        page.take(page_patches.dumps(page_patches.patch(before, now)))
        same(page, now)
    assert page.added > 3 * page.replaced
    run.close()
    assert watch.look() is not None
    assert watch.state == "finished"


def test_nothing_new_is_no_look(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path / "run", flush_steps=1) as run:
        run.log(loss=1.0)
    watch = Watch(tmp_path / "run", "run")
    assert watch.look() is not None
    assert watch.look() is None


def test_a_long_run_sends_only_its_new_points(tmp_path: Path) -> None:
    run = steadyrun.record(tmp_path / "run")
    rng = np.random.default_rng(0)
    for value in rng.standard_normal(3 * MOST):
        run.log(loss=float(np.exp(value)))
    run.flush()
    watch = Watch(tmp_path / "run", "run")
    board = watch.look()
    assert board is not None
    before = page_patches.shown(board)
    assert before.coarse == (1,)
    for value in rng.standard_normal(100):
        run.log(loss=float(np.exp(value)))
    run.flush()
    board = watch.look()
    assert board is not None
    now = page_patches.shown(board)
    (change,) = page_patches.patch(before, now)["panels"]
    page = Page(page_patches.dumps(page_patches.whole(before)))
    page.take(page_patches.dumps(page_patches.patch(before, now)))
    same(page, now)
    assert len(json.dumps(change["traces"])) < 4000
    run.close()


def test_a_window_is_refined_from_all_data(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path / "run") as run:
        for step in range(5 * MOST):
            run.log(loss=1.0 + step % 7)
    watch = Watch(tmp_path / "run", "run")
    watch.look()
    panel = watch.panel(1, 5000.5, 5100.5)
    assert panel.lines[0].steps.tolist() == list(range(5000, 5102))
    assert panel.caption == board_of(tmp_path / "run").panels[0].caption


@pytest.mark.parametrize(
    ("lens", "expected"),
    [
        (Lens(), [0, 10, 20, 30, 40]),
        (Lens(12, 28), [10, 20, 30]),
        (Lens(10, 20), [0, 10, 20, 30]),
        (Lens(100, 200), [40]),
        (Lens(-20, -10), [0]),
        (Lens(newer=15), [0, 10, 20, 30, 40]),
    ],
)
def test_a_lens_shows_its_steps_and_one_point_on_either_side(lens: Lens, expected: list[int]) -> None:
    steps = np.arange(0, 50, 10)
    with through(lens):
        assert steps[chosen(steps, np.ones(5))].tolist() == expected
    assert len(chosen(steps, np.ones(5))) == 5


def test_what_was_thinned_stays_as_it_was() -> None:
    values = np.random.default_rng(0).standard_normal(10_000)
    steps = np.arange(10_000)
    with through(Lens(newer=8000)):
        before, after = chosen(steps[:9000], values[:9000], 500), chosen(steps, values, 500)
    assert after[: len(before)].tolist() == before.tolist()
    assert after[-1999:].tolist() == list(range(8001, 10_000))
    assert len(after) < 2600


def test_a_trial_that_ends_later_comes_as_a_patch(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path / "run") as run:
        for step in range(120):
            run.log(loss=3.0 - step / 100)
    watch = Watch(tmp_path / "run", "run")
    before = page_patches.shown(watch.look() or board_of(tmp_path / "run"))
    page = Page(page_patches.dumps(page_patches.whole(before)))
    assert page.parts["trial"].strip() == ""
    assert watch.look() is None
    for verdict in ("fault", "clear"):
        keep(tmp_path / "run", kept(verdict=verdict))
        board = watch.look()
        assert board is not None
        now = page_patches.shown(board)
        page.take(page_patches.dumps(page_patches.patch(before, now)))
        same(page, now)
        assert "The learning rate divided by 10: better by 52%" in page.parts["trial"]
        assert set(page.figures) >= set(range(101, 106))
        before = now
