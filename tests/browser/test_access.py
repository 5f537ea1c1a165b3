"""Everybody reads the page: enough contrast, every finding within reach of a keyboard, names for a screen reader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import steadyrun
from steadyrun.panels.board import board_of
from steadyrun.panels.dashboard_page import page

Show = Callable[..., Any]
ENOUGH = 4.5

# Every element that has text of its own and is seen: the contrast of its colour with what lies behind it.
CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (text) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const over = (top, below) => [0, 1, 2].map((i) => (top[i] * top[3] + below[i] * (255 - top[3])) / 255);
  const behind = (element) => {
    const layers = [];
    for (let at = element; at && !(layers.length && layers.at(-1)[3] === 255); at = at.parentElement) {
      layers.push(rgb(getComputedStyle(at).backgroundColor));
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const linear = (value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const light = (c) => 0.2126 * linear(c[0] / 255) + 0.7152 * linear(c[1] / 255) + 0.0722 * linear(c[2] / 255);
  const own = (element) => [...element.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data.trim()).join("");
  const found = [];
  for (const element of document.querySelectorAll("header *, main *")) {
    if (element.closest("svg, option, :disabled") || !element.checkVisibility() || !own(element)) continue;
    const back = behind(element), ink = over(rgb(getComputedStyle(element).color), back);
    const [high, low] = [light(ink), light(back)].sort((a, b) => b - a);
    found.push([(high + 0.05) / (low + 0.05), `${element.tagName}.${element.className}: ${own(element).slice(0, 40)}`]);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def broken(tutor_run: Callable[..., steadyrun.RunView], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "dashboard.html"
    file.write_text(page(board_of(tutor_run("bad-init", steps=60).root)), encoding="utf-8")
    return file


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast(show: Show, broken: Path, scheme: str) -> None:
    tab = show(broken, color_scheme=scheme)
    tab.page.locator("#walk summary").click()
    found = tab.page.evaluate(CONTRASTS)
    assert len(found) > 100, "the whole page was looked at"
    faint = [f"{contrast:.2f} {what}" for contrast, what in found if contrast < ENOUGH]
    assert not faint, "\n".join(faint)


def test_a_keyboard_reaches_every_finding_and_opens_it(show: Show, broken: Path) -> None:
    tab = show(broken)
    wanted = tab.page.locator("button.show, a.show, summary").count()
    reached = set()
    for _ in range(400):
        tab.page.keyboard.press("Tab")
        where = tab.page.evaluate(
            "[...document.querySelectorAll('button.show, a.show, summary')].indexOf(document.activeElement)"
        )
        reached.add(where)
        if len(reached - {-1}) == wanted:
            break
    assert len(reached - {-1}) == wanted
    tab.page.locator(".leaf button.show").focus()
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_function("!document.getElementById('reset').disabled")


def test_controls_and_plots_have_names(show: Show, broken: Path) -> None:
    tab = show(broken)
    nameless = """[...document.querySelectorAll("button, input, select, [role=img]")]
        .filter((e) => !(e.getAttribute("aria-label") || e.title || e.textContent.trim() || e.labels?.length))
        .map((e) => e.outerHTML.slice(0, 80))"""
    assert tab.page.evaluate(nameless) == []
