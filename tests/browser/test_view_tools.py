"""What a reader does with a page: smooth, choose an axis, point at a line, keep a panel, sort and group runs."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from servers import Server, eventually, serving

import steadyrun
from steadyrun.panels.board import board_of
from steadyrun.panels.dashboard_page import page

Show = Callable[..., Any]
TOKENS = 64


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seeds of one program that logs values of its own, and one with another rate."""
    root = tmp_path_factory.mktemp("seeds")
    for name, seed, rate in (("a0", 0, 1e-3), ("a1", 1, 1e-3), ("a2", 2, 1e-3), ("b0", 0, 1e-2)):
        noise = random.Random(seed)
        with steadyrun.record(root / name, config={"seed": seed, "lr_max": rate}) as run:
            for step in range(200):
                loss = 2 * math.exp(-step / 80) + 0.2 * noise.random() + seed
                mine = {"eval/reward": step + noise.random(), "eval/length": 10.0, "accuracy": 1 - math.exp(-step / 50)}
                run.log(loss=loss, tokens=TOKENS, **mine)
    return root


@pytest.fixture
def tab(show: Show, runs: Path, tmp_path: Path) -> Any:
    file = tmp_path / "dashboard.html"
    file.write_text(page(board_of(runs / "a0")), encoding="utf-8")
    return show(file)


@pytest.fixture(scope="session")
def served(runs: Path) -> Iterator[Server]:
    with serving(runs) as server:
        yield server


def first_line(tab: Any, panel: int) -> Any:
    return tab.page.evaluate(f"document.querySelector('#panel-{panel} .plot').data.map(t => [t.meta || '', t.opacity])")


@pytest.mark.parametrize("fault", ["healthy", "bad-init"])
def test_the_first_screen_holds_the_answer_the_signs_and_all_panels(
    show: Show, tutor_run: Callable[..., steadyrun.RunView], tmp_path: Path, fault: str
) -> None:
    file = tmp_path / "dashboard.html"
    file.write_text(page(board_of(tutor_run(fault, steps=60).root)), encoding="utf-8")
    tab = show(file, viewport={"width": 1440, "height": 900})
    for selector in ("#verdict h1", "#verdict .signs li", *(f"#panel-{number} .plot" for number in range(1, 8))):
        for element in tab.page.locator(selector).all():
            box = element.bounding_box()
            assert box["y"] >= 0
            assert box["y"] + box["height"] <= 900, selector
    assert not tab.page.locator("#walk .walk").is_visible(), "the walk is folded"
    assert tab.page.locator("#walk").bounding_box()["y"] > 800


def test_every_logged_scalar_has_a_chart_in_the_group_of_its_prefix(tab: Any) -> None:
    groups = tab.page.locator(".chart-group").all()
    names = {g.locator("h2").inner_text(): [h.inner_text().split()[0] for h in g.locator("h3").all()] for g in groups}
    assert names == {"logged values": ["accuracy"], "eval": ["eval/length", "eval/reward"]}
    drawn = "[...document.querySelectorAll('.chart .plot')].map(p => p.data[0].x.length)"
    assert tab.page.evaluate(drawn) == [200] * 3
    assert "What else does the program measure?" in tab.page.locator("#panel-7 h2").inner_text()


def smooth(tab: Any, weight: str) -> None:
    tab.page.locator("#smoothing").evaluate(f"s => {{ s.value = '{weight}'; s.dispatchEvent(new Event('input')); }}")


def test_smoothing_draws_a_mean_over_the_raw_line(tab: Any) -> None:
    assert first_line(tab, 1) == [["", 1]]
    smooth(tab, "0.9")
    assert first_line(tab, 1) == [["", 0.25], ["smoothed", 1]]
    raw, mean = tab.page.evaluate("document.querySelector('#panel-1 .plot').data.map(t => [...t.y])")
    assert roughness(mean) < 0.5 * roughness(raw)
    smooth(tab, "0")
    assert first_line(tab, 1) == [["", 1]]
    assert tab.said == []


def roughness(values: list[float]) -> float:
    return sum(abs(later - earlier) for earlier, later in pairwise(values))


def test_the_x_axis_can_be_tokens_and_a_finding_is_still_zoomed_to(tab: Any) -> None:
    options = tab.page.evaluate("[...document.getElementById('x-axis').options].map(o => o.textContent)")
    assert options == ["step", "time", "tokens"]
    tab.page.select_option("#x-axis", "tokens")
    last = tab.page.evaluate("document.querySelector('#panel-1 .plot').data[0].x.at(-1)")
    assert last == 200 * TOKENS
    tab.page.evaluate("window.steadyrun.zoom(64 * 10, 64 * 20, null)")
    tab.page.select_option("#x-axis", "")
    low, high = tab.page.evaluate("document.querySelector('#panel-1 .plot').layout.xaxis.range")
    assert (low, high) == (pytest.approx(9, abs=0.01), pytest.approx(19, abs=0.01))


def test_a_panel_has_a_log_toggle_of_its_own(tab: Any) -> None:
    kinds = "[1, 7].map(n => document.querySelector(`#panel-${n} .plot`).layout.yaxis.type)"
    before = tab.page.evaluate(kinds)
    tab.page.locator("#panel-7 [data-do=log]").click()
    assert before == ["log", "linear"]
    assert tab.page.evaluate(kinds) == ["log", "log"]
    assert tab.page.locator("#panel-7 [data-do=log]").get_attribute("aria-pressed") == "true"


def test_pointing_at_one_panel_reads_all_of_them(tab: Any) -> None:
    box = tab.page.locator("#panel-1 .plot .nsewdrag").first.bounding_box()
    for height in (0.9, 0.8, 0.7, 0.6, 0.5, 0.4):
        tab.page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * height)
        if tab.page.locator("#panel-7 .cursor").count():
            break
    assert tab.page.locator(".plot > .cursor").count() == 5, "two panels and three charts"
    assert "accuracy 0.8" in tab.page.locator("#panel-7 .readout").inner_text()


def test_a_panel_is_kept_as_csv_and_as_png(tab: Any) -> None:
    with tab.page.expect_download() as kept:
        tab.page.locator("#panel-1 [data-do=csv]").click()
    rows = Path(kept.value.path()).read_text().splitlines()
    assert rows[0] == "series,step,value"
    assert len(rows) == 201
    name, step, value = rows[1].split(",")
    assert (name, step) == ('"train"', "0")
    assert float(value) > 2
    with tab.page.expect_download() as kept:
        tab.page.locator("#panel-7 [data-do=png]").click()
    assert Path(kept.value.path()).read_bytes().startswith(b"\x89PNG")
    assert tab.outside == []
    assert tab.said == []


def test_the_list_sorts_shows_settings_and_groups_seeds(show: Show, served: Server) -> None:
    tab = show(served.address, "#runs tbody tr")
    names = "[...document.querySelectorAll('#runs tbody th a')].map(a => a.textContent)"
    eventually(lambda: tab.page.locator("#runs td.last:not(:empty)").count() == 4)
    tab.page.locator("#runs .sort", has_text="loss").click()
    assert tab.page.evaluate(names)[2:] == ["a1", "a2"], "larger losses last"
    tab.page.locator("#runs .sort", has_text="loss").click()
    assert tab.page.evaluate(names)[:2] == ["a2", "a1"]
    tab.page.select_option("#column", "lr_max")
    assert sorted(tab.page.locator("#runs td.setting").all_inner_texts()) == ["0.001", "0.001", "0.001", "0.01"]
    tab.page.check("#seeds")
    group = tab.page.locator("#runs tr.seeds")
    assert group.count() == 1
    assert "3 seeds" in group.inner_text()
    assert "±" in group.inner_text()
    group.locator("a").click()
    tab.page.wait_for_selector("html[data-live]")
    assert "3 seeds" in tab.page.locator("#panel-1 .legend").inner_text()
    assert [row.inner_text() for row in tab.page.locator("#differences tbody th").all()] == ["seed"]


def test_the_live_page_draws_the_charts(show: Show, served: Server) -> None:
    tab = show(f"{served.base}/run/a0", "html[data-live]")
    drawn = "[...document.querySelectorAll('.chart .plot')].filter(p => p.data).length === 3"
    eventually(lambda: tab.page.evaluate(drawn))
    assert tab.said == []
