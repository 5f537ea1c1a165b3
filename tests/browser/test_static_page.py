"""The static page in a real browser."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kept_trials import keep, kept

import steadyrun
from steadyrun.panels.board import board_of
from steadyrun.panels.dashboard_page import page

sys.path.insert(0, str(Path(__file__).parents[1] / "panels"))
from test_odd_series import hostile_board

Show = Callable[..., Any]


@pytest.fixture(scope="session")
def bad_init(tutor_run: Callable[..., steadyrun.RunView], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "dashboard.html"
    file.write_text(page(board_of(tutor_run("bad-init", steps=60).root)), encoding="utf-8")
    return file


def test_seven_panels_are_drawn_without_an_error_and_without_the_network(show: Show, bad_init: Path) -> None:
    tab = show(bad_init)
    assert tab.page.locator(".plot .main-svg").first.is_visible()
    drawn = "[...document.querySelectorAll('.plot')].map(p => p.querySelectorAll('.scatterlayer .trace').length > 0)"
    assert tab.page.evaluate(drawn) == [True] * 7
    assert tab.said == []
    assert tab.outside == []
    assert tab.page.locator("#verdict h1").inner_text().startswith("✗ fault: ")
    assert "(C5.1) at step 0" in tab.page.locator("#verdict h1").inner_text()


def test_nothing_overlaps_or_leaves_its_place(show: Show, bad_init: Path) -> None:
    tab = show(bad_init)
    boxes = [panel.bounding_box() for panel in tab.page.locator(".panel").all()]
    for place, one in enumerate(boxes):
        for other in boxes[place + 1 :]:
            beside = one["x"] + one["width"] <= other["x"] or other["x"] + other["width"] <= one["x"]
            below = one["y"] + one["height"] <= other["y"] or other["y"] + other["height"] <= one["y"]
            assert beside or below
    inside = "[...document.querySelectorAll('.panel')].every(p => p.scrollWidth <= p.clientWidth + 1)"
    assert tab.page.evaluate(inside)


def test_clicking_a_finding_zooms_all_panels_and_the_button_resets_them(show: Show, bad_init: Path) -> None:
    tab = show(bad_init)
    whole = tab.ranges()
    assert len({tuple(steps) for steps in whole}) == 1
    tab.page.locator(".leaf button.show").click()
    tab.page.wait_for_function("document.querySelector('#panel-1 .plot').layout.xaxis.range[1] < 40")
    zoomed = tab.ranges()
    assert len({tuple(steps) for steps in zoomed}) == 1
    assert zoomed[0][0] <= 0 <= zoomed[0][1] < whole[0][1]
    assert "shown" in (tab.page.locator("#panel-5").get_attribute("class") or "")
    tab.page.locator("#reset").click()
    tab.page.wait_for_function("document.querySelector('#panel-7 .plot').layout.xaxis.range[1] > 50")
    assert tab.ranges() == whole
    assert tab.page.locator("#reset").is_disabled()
    assert tab.said == []


def test_zooming_one_panel_zooms_the_others(show: Show, bad_init: Path) -> None:
    tab = show(bad_init)
    box = tab.page.locator("#panel-3 .plot .nsewdrag").first.bounding_box()
    tab.page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 40)
    tab.page.mouse.down()
    tab.page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 42, steps=5)
    tab.page.mouse.up()
    tab.page.wait_for_function("!document.getElementById('reset').disabled")
    tab.page.wait_for_timeout(200)
    assert len({tuple(round(step, 6) for step in steps) for steps in tab.ranges()}) == 1


def test_hovering_tells_the_exact_value(show: Show, bad_init: Path) -> None:
    tab = show(bad_init)
    box = tab.page.locator("#panel-1 .plot .nsewdrag").first.bounding_box()
    first = tab.page.evaluate("document.querySelector('#panel-1 .plot').data.find(t => !t.meta).y[0]")
    for height in range(2, int(box["height"]), 4):
        tab.page.mouse.move(box["x"] + box["width"] * 0.016, box["y"] + height)
        tab.page.wait_for_timeout(30)
        if "train" in (said := tab.page.locator("#panel-1 .hoverlayer").text_content() or ""):
            break
    assert f"{first:.6g}"[:6] in said


def test_a_legend_entry_hides_its_line(show: Show, bad_init: Path) -> None:
    tab = show(bad_init)
    entry = tab.page.locator("#panel-1 .entry").first
    entry.click()
    assert entry.get_attribute("aria-pressed") == "false"
    assert tab.page.evaluate("document.querySelector('#panel-1 .plot').data[0].visible") == "legendonly"
    entry.click()
    assert tab.page.evaluate("document.querySelector('#panel-1 .plot').data[0].visible") is True


def test_hostile_names_do_no_harm(show: Show, tmp_path: Path) -> None:
    file = tmp_path / "hostile.html"
    file.write_text(page(hostile_board()), encoding="utf-8")
    tab = show(file)
    assert tab.said == []
    assert tab.outside == []
    scripts = "[...document.scripts].filter(s => s.textContent.startsWith('alert')).length"
    assert tab.page.evaluate(scripts) == 0
    assert "<script>alert(1)</script>" in tab.page.locator("#run-name").inner_text()
    assert "</td><scrip…" in tab.page.locator("#panel-5 .entry").first.inner_text()


def test_dark_and_light(show: Show, bad_init: Path) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    ink = "document.querySelector('#panel-1 .plot').layout.font.color"
    dark, light = show(bad_init, color_scheme="dark"), show(bad_init, color_scheme="light")
    assert dark.page.evaluate(background) == "rgb(18, 21, 27)"
    assert light.page.evaluate(background) == "rgb(246, 247, 249)"
    assert dark.page.evaluate(ink) != light.page.evaluate(ink)
    light.page.locator("#theme").click()
    assert light.page.evaluate(background) == dark.page.evaluate(background)
    light.page.wait_for_function(f"{ink} === '{dark.page.evaluate(ink)}'")


def test_a_phone_has_no_horizontal_scrolling(show: Show, bad_init: Path) -> None:
    tab = show(bad_init, viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
    assert tab.page.evaluate("document.documentElement.scrollWidth") == 390
    assert all(panel.bounding_box()["width"] > 340 for panel in tab.page.locator(".panel").all())
    tab.page.locator(".leaf button.show").tap()
    tab.page.wait_for_function("document.querySelector('#panel-1 .plot').layout.xaxis.range[1] < 40")
    assert tab.said == []


def test_printing_shows_everything(show: Show, bad_init: Path) -> None:
    tab = show(bad_init)
    tab.page.emulate_media(media="print")
    assert not tab.page.locator("#reset").is_visible()
    assert tab.page.locator(".panel .plot").count() == 7
    assert len(tab.page.pdf()) > 20_000
    tab.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    widths = "[...document.querySelectorAll('.plot')].map(plot => plot.querySelector('.main-svg').clientWidth)"
    assert tab.page.evaluate(widths) == [660] + [310] * 6
    tab.page.emulate_media(media="screen")
    tab.page.evaluate("dispatchEvent(new Event('afterprint'))")
    tab.page.wait_for_function(f"{widths}[0] > 660")


def test_one_panel(show: Show, tutor_run: Callable[..., steadyrun.RunView], tmp_path: Path) -> None:
    file = tmp_path / "one.html"
    file.write_text(page(board_of(tutor_run("bad-init", steps=60).root), only=3), encoding="utf-8")
    tab = show(file)
    assert tab.page.locator(".panel").count() == 1
    assert tab.page.locator("#panel-3 .plot .main-svg").first.is_visible()
    tab.page.locator(".leaf button.show").click()
    assert tab.said == []


@pytest.fixture(scope="session")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tried")
    with steadyrun.record(folder / "run") as run:
        for step in range(300):
            run.log(loss=3.0 - step / 200, lr=0.1)
    keep(folder / "run", kept())
    file = folder / "dashboard.html"
    file.write_text(page(board_of(folder / "run")), encoding="utf-8")
    return file


def test_the_twins_of_a_trial_are_drawn_and_stay_while_panels_are_zoomed(show: Show, tried: Path) -> None:
    tab = show(tried)
    drawn = "[...document.querySelectorAll('#trial .plot')].map(p => p.querySelectorAll('.scatterlayer .trace').length)"
    assert min(tab.page.evaluate(drawn)) >= 4
    axes = "JSON.stringify([p.layout.xaxis.range, p.layout.yaxis.range])"
    ranges = f"[...document.querySelectorAll('#trial .plot')].map(p => {axes})"
    whole = tab.page.evaluate(ranges)
    assert len(whole) == 5
    assert len(set(whole)) == 1
    tab.page.evaluate("window.steadyrun.zoom(200, 250, null)")
    tab.page.wait_for_function("document.querySelector('#panel-1 .plot').layout.xaxis.range[0] === 200")
    assert tab.page.evaluate(ranges) == whole
    tab.page.locator("#reset").click()
    tab.page.wait_for_function("document.querySelector('#panel-1 .plot').layout.xaxis.range[0] < 1")
    assert tab.page.evaluate(ranges) == whole
    assert tab.said == []
    assert tab.outside == []


@pytest.mark.parametrize("width", [390, 1000, 1440])
def test_plots_of_a_trial_fit_every_width(show: Show, tried: Path, width: int) -> None:
    tab = show(tried, viewport={"width": width, "height": 800})
    assert tab.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert tab.page.evaluate("[...document.querySelectorAll('.change')].every(p => p.scrollWidth <= p.clientWidth + 1)")
    tops = "[...document.querySelectorAll('.change .plot')].map(p => p.getBoundingClientRect().top)"
    first, second, *_ = tab.page.evaluate(tops)
    assert first == second  # titles of two lengths, plots in one row
