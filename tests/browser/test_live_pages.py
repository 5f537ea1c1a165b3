"""The served pages in a real browser, on runs that another process writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kept_trials import keep, kept
from samples import HOSTILE
from servers import Server, eventually, serving, writing

import steadyrun

Show = Callable[..., Any]
LIVE = "html[data-live]"
LAST = """() => {
  const trace = document.querySelector('#panel-1 .plot').data.find((each) => each.name === 'train' && !each.meta);
  return trace.y[trace.y.length - 1];
}"""
POINTS = """(number) => document.querySelector(`#panel-${number} .plot`).data.find((each) => !each.meta).x.length"""
NAME = HOSTILE.replace("/", "|").replace("\0", "")[:100]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    root = tmp_path_factory.mktemp("served")
    for name, rate in (("one", 0.1), ("two", 0.2)):
        with steadyrun.record(root / name, config={"lr_max": rate}) as run:
            for step in range(100):
                run.log(loss=3.0 / (1 + rate * step), lr=rate, grad_norm=1.0)
    with steadyrun.record(root / NAME) as run:
        for step in range(30):
            run.log(loss=3.0 - 0.01 * step, **{"activation/<img src=x onerror=alert(1)>": 1.0})
    with serving(root) as server:
        yield server, root


def until(tab: Any, condition: str) -> None:
    """Asked from outside: what playwright would ask again and again inside the page, the page's policy forbids."""
    eventually(lambda: tab.page.evaluate(condition))


def until_last(tab: Any, value: float) -> None:
    eventually(lambda: tab.page.evaluate(LAST) == value)


def until_standing(tab: Any, text: str) -> None:
    eventually(lambda: text in tab.page.locator("#standing").inner_text())


def test_a_point_written_by_another_process_appears(show: Show, served: tuple[Server, Path]) -> None:
    server, root = served
    with writing(root / "live") as writer:
        writer.write(*[3.0] * 40)
        tab = show(f"{server.base}/run/live", LIVE)
        eventually(lambda: "● live" in tab.page.locator("#link").inner_text())
        until_last(tab, 3.0)
        for value in (2.5, 2.25):
            writer.write(value)
            until_last(tab, value)
        assert tab.page.evaluate("document.querySelectorAll('#panel-1 .scatterlayer .trace').length") >= 1
        assert "running, last step 41" in tab.page.locator("#standing").inner_text()
        writer.write(float("nan"))
        tab.page.wait_for_selector("#verdict h1.fault", timeout=300_000)
        tab.page.wait_for_selector("#panel-1.fault")
        writer.finish()
        until_standing(tab, "finished")
    assert tab.said == []
    assert all(url.startswith(server.base) or url == "data:," for url in tab.requests)


def test_a_crash_is_shown_and_a_resume_followed(show: Show, served: tuple[Server, Path]) -> None:
    server, root = served
    with writing(root / "crash") as writer:
        writer.write(*[3.0] * 20)
        tab = show(f"{server.base}/run/crash", LIVE)
        writer.crash()
        until_standing(tab, "killed")
    with writing(root / "crash", first_step=10) as writer:
        writer.write(*[2.0] * 5)
        until_last(tab, 2.0)
        assert tab.page.evaluate(POINTS, 1) == 15
        assert "• resume" in tab.page.locator("#panel-1 .annotation-text").all_text_contents()
    assert tab.said == []


def test_panels_appear_when_they_have_something_to_show(show: Show, served: tuple[Server, Path]) -> None:
    server, root = served
    run = steadyrun.record(root / "growing", flush_steps=1)
    run.log(loss=1.0)
    tab = show(f"{server.base}/run/growing", LIVE)
    assert tab.page.locator("#panel-3 .plot").count() == 0
    run.log(loss=1.0, grad_norm=2.0)
    tab.page.wait_for_selector("#panel-3 .plot .main-svg", timeout=300_000)
    run.val(1.5)
    tab.page.wait_for_selector("#panel-1 .entry >> text=validation", timeout=300_000)
    assert tab.page.locator("#panel-1 .plot").count() == 1
    run.close()
    assert tab.said == []


def test_zooming_refines_and_new_points_do_not_undo_it(show: Show, served: tuple[Server, Path]) -> None:
    server, root = served
    run = steadyrun.record(root / "long", flush_steps=50_000)
    for step in range(30_000):
        run.log(loss=1.5 + step % 11)
    run.flush()
    tab = show(f"{server.base}/run/long", LIVE)
    until(tab, f"({POINTS})(1) > 100")
    assert tab.page.evaluate(POINTS, 1) < 3100
    tab.page.evaluate("window.steadyrun.zoom(10000, 10400, null)")
    tab.page.wait_for_selector("html[data-refined]")
    inside = "document.querySelector('#panel-1 .plot').data[0].x.filter((x) => x >= 10000 && x <= 10400).length"
    assert tab.page.evaluate(inside) == 401
    run.log(loss=1.25)
    run.flush()
    until_standing(tab, "last step 30000")
    assert tab.ranges()[0] == [10000, 10400]
    assert tab.page.evaluate(inside) == 401
    tab.page.locator("#reset").click()
    until_last(tab, 1.25)
    assert tab.ranges()[0][1] > 30_000
    run.close()
    assert tab.said == []


def test_what_the_reader_chose_stays(show: Show, served: tuple[Server, Path]) -> None:
    server, root = served
    with writing(root / "chosen") as writer:
        writer.write(*[3.0] * 40)
        tab = show(f"{server.base}/run/chosen", LIVE)
        tab.page.locator("#panel-3 .entry").first.click()
        tab.page.evaluate("document.getElementById('walk').open = false")
        writer.write(*[2.0] * 10)
        until_last(tab, 2.0)
        tab.page.wait_for_timeout(2500)  # long enough for a walk
        assert tab.page.locator("#panel-3 .entry").first.get_attribute("aria-pressed") == "false"
        assert tab.page.evaluate("document.querySelector('#panel-3 .plot').data[0].visible") == "legendonly"
        assert tab.page.evaluate("document.getElementById('walk').open") is False
    assert tab.said == []


def test_the_list_and_the_way_to_compare(show: Show, served: tuple[Server, Path]) -> None:
    server, root = served
    tab = show(f"{server.base}/", "#runs:not([hidden])")
    for name in ("one", "two"):
        tab.page.get_by_label(f"compare {name}").check()
    with steadyrun.record(root / "appears") as run:
        run.log(loss=1.75)
    tab.page.wait_for_selector("#runs >> text=1.75", timeout=300_000)
    tab.page.locator("#filter").fill("appears")
    assert [row.is_visible() for row in tab.page.locator("#runs tbody tr").all()].count(True) == 1
    tab.page.locator("#filter").fill("")
    tab.page.locator("#compare").click()
    tab.page.wait_for_selector(LIVE)
    assert tab.page.url.endswith("/compare?run=one&run=two")
    colours = tab.page.evaluate("document.querySelector('#panel-1 .plot').data.map((trace) => trace.line.color)")
    assert len(set(colours)) == 2
    assert "lr_max" in tab.page.locator("#differences").inner_text()
    assert tab.page.locator("#verdict li").count() == 2
    tab.page.evaluate("window.steadyrun.zoom(10, 20, null)")
    assert tab.said == []


def test_hostile_names_do_no_harm(show: Show, served: tuple[Server, Path]) -> None:
    server, _ = served
    tab = show(f"{server.base}/", "#runs:not([hidden])")
    tab.page.locator("#runs a", has_text="<script>").click()
    tab.page.wait_for_selector(LIVE)
    assert "<script>alert(1)<|script>" in tab.page.locator("#run-name").inner_text()
    assert "<img src=x onerror=alert(1)>" in tab.page.locator("#panel-4").inner_text()
    tab.page.go_back()
    for path in ("/run/..%2f..%2fetc", "/run/../../etc/passwd"):
        answer = tab.page.goto(f"{server.base}{path}")
        assert answer.status == 404
    assert [line for line in tab.said if "404" not in line] == []


def test_an_empty_folder_says_how_to_record(show: Show, tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        tab = show(f"{server.base}/", "#empty:not([hidden])")
        assert "steadyrun.record(" in tab.page.locator("#empty").inner_text()
        with steadyrun.record(tmp_path / "run") as run:
            run.log(loss=1.0)
        tab.page.wait_for_selector("#runs >> text=run", timeout=300_000)
        assert tab.said == []


def test_a_token_in_the_address_opens_everything(show: Show, served: tuple[Server, Path]) -> None:
    _, root = served
    with serving(root, "--token", "a-secret-token") as server:
        tab = show(f"{server.base}/run/one?token=a-secret-token", LIVE)
        assert tab.page.url == f"{server.base}/run/one"
        assert tab.page.evaluate("document.cookie") == ""
        assert tab.said == []


@pytest.mark.parametrize("path", ["/", "/run/one", "/compare?run=one&run=two"])
def test_a_phone_has_no_horizontal_scrolling(show: Show, served: tuple[Server, Path], path: str) -> None:
    server, _ = served
    drawn = "#runs:not([hidden])" if path == "/" else LIVE
    tab = show(f"{server.base}{path}", drawn, viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
    assert tab.page.evaluate("document.documentElement.scrollWidth") == 390
    assert tab.said == []


def test_a_trial_that_ends_later_appears(show: Show, served: tuple[Server, Path]) -> None:
    server, root = served
    with steadyrun.record(root / "tried") as run:
        for step in range(120):
            run.log(loss=3.0 - step / 100)
    tab = show(f"{server.base}/run/tried", LIVE)
    assert not tab.page.locator("#trial").is_visible()
    keep(root / "tried", kept(message=HOSTILE))
    drawn = "[...document.querySelectorAll('#trial .plot')].filter(p => p.querySelector('.scatterlayer .trace')).length"
    until(tab, f"{drawn} === 5")
    assert tab.page.locator("#trial .said").inner_text().startswith("The trial found a fault. ")
    keep(root / "tried", kept(verdict="clear"))
    until(tab, "document.querySelector('#trial .said').textContent.startsWith('The trial found nothing wrong')")
    until(tab, f"{drawn} === 5")
    assert tab.said == []
