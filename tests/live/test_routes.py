"""What the routes answer: the same dashboard as the static page, clear words for what is not there."""

from __future__ import annotations

import html
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from samples import HOSTILE
from starlette.testclient import TestClient

import steadyrun
from steadyrun.live.app import Live, application
from steadyrun.live.page_patches import encoded
from steadyrun.panels.board import board_of
from steadyrun.panels.dashboard_page import fragment, payload

NAME = HOSTILE.replace("/", "|").replace("\0", "")[:100]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    for name, config, rate in (("a", {"lr_max": 0.1, "seed": 1}, 3.0), ("b", {"lr_max": 0.2, "seed": 1}, 2.0)):
        with steadyrun.record(root / name, config=config) as run:
            for step in range(120):
                run.log(loss=rate / (1 + 0.01 * step), lr=config["lr_max"], grad_norm=1.0)
    with steadyrun.record(root / NAME, config={HOSTILE.replace("\udcff", ""): "</script><b>"}) as run:
        run.log(loss=float("nan"), **{"activation/<b>x</b>": 1.0})
    return root


@pytest.fixture(scope="module")
def browser(root: Path) -> Iterator[TestClient]:
    with TestClient(application(Live(root, {})), base_url="http://localhost", follow_redirects=False) as browser:
        yield browser


def test_the_run_page_says_what_the_static_page_says(browser: TestClient, root: Path) -> None:
    page = browser.get("/run/a").text
    board = board_of(root / "a")
    assert fragment("verdict", board) in page
    assert all(html.escape(panel.title) in page for panel in board.panels)
    assert "<script>" not in page
    assert page.count("<script src=") == 4


def test_the_data_is_that_of_the_static_page(browser: TestClient, root: Path) -> None:
    live = {panel["number"]: panel["figure"]["data"] for panel in browser.get("/api/run/a/data").json()["panels"]}
    static = {panel["number"]: encoded(panel["figure"]["data"]) for panel in payload(board_of(root / "a"))["panels"]}
    for number, traces in live.items():
        assert [(trace["x"], trace["y"]) for trace in traces] == [(trace["x"], trace["y"]) for trace in static[number]]


def test_a_part_of_a_panel(browser: TestClient) -> None:
    assert browser.get("/api/run/a/panel/1?from=10&to=20").json()["number"] == 1
    for query, status in (("", 400), ("?from=a&to=b", 400), ("?from=2&to=1", 400), ("?from=nan&to=1", 400)):
        assert browser.get(f"/api/run/a/panel/1{query}").status_code == status
    assert browser.get("/api/run/a/panel/8?from=0&to=1").status_code == 404
    assert browser.get("/api/run/a/panel/x?from=0&to=1").status_code == 404


@pytest.mark.parametrize("name", ["nothing", "%2e%2e", "..%2f..%2fetc", "%00", "a%5cb", "a/", "/a", "%2fetc%2fpasswd"])
def test_what_is_no_run_is_not_found(browser: TestClient, name: str) -> None:
    for path in (f"/run/{name}", f"/api/run/{name}/data", f"/api/run/{name}/events", f"/api/compare?run={name}&run=a"):
        assert browser.get(path).status_code == 404, path


def test_assets(browser: TestClient) -> None:
    page = browser.get("/run/a").text
    for name in ("plotly.js", "dashboard.js", "dashboard.css", "live.js", "live.css"):
        (address,) = {part.split('"')[0] for part in page.split('"')[1:] if part.startswith(f"/assets/{name}")}
        answer = browser.get(address)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["content-type"].startswith("text/css" if name.endswith("css") else "text/javascript")
    for name in ("nothing.js", "..%2fapp.py", "live.js%00", "%2e%2e/pages.py"):
        assert browser.get(f"/assets/{name}").status_code == 404


def test_hostile_names_are_only_shown(browser: TestClient, root: Path) -> None:
    rows: Any = browser.get("/api/runs").json()["rows"]
    (row,) = [row for row in rows if row["key"] not in {"a", "b"}]
    assert row["name"].isprintable()
    for path in (f"/run/{row['key']}", f"/compare?run={row['key']}&run=a"):
        page = browser.get(path)
        assert page.status_code == 200, page.text
        assert "<script>alert" not in page.text
        assert "<b>" not in page.text
        assert "&lt;script&gt;alert" in page.text
    assert "<b>" not in str(browser.get(f"/api/run/{row['key']}/data").json())


def test_comparing(browser: TestClient) -> None:
    page = browser.get("/compare?run=a&run=b").text
    assert "lr_max" in page
    assert "seed" not in page
    assert page.count('class="swatch"') == 2
    data = browser.get("/api/compare?run=a&run=b").json()
    assert data["ended"] is True
    names = {panel["number"]: [trace["name"] for trace in panel["figure"]["data"]] for panel in data["panels"]}
    lines = {1: "train", 2: "recorded", 3: "gradient norm"}
    assert names == {number: [f"a: {line}", f"b: {line}"] for number, line in lines.items()}
    colours = [trace["line"]["color"] for trace in data["panels"][0]["figure"]["data"]]
    assert len(set(colours)) == 2
    part = browser.get("/api/compare/panel/1?run=a&run=b&from=0&to=5").json()
    assert part["number"] == 1
    assert browser.get("/api/compare/panel/4?run=a&run=b&from=0&to=5").status_code == 400


@pytest.mark.parametrize("query", ["", "?run=a", "?run=a&run=a", "?run=a&run="])
def test_comparing_needs_two_runs(browser: TestClient, query: str) -> None:
    answer = browser.get(f"/compare{query}")
    assert answer.status_code in {400, 404}
    assert answer.text


def test_a_damaged_run_says_so(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path / "run") as run:
        run.log(loss=1.0)
    (tmp_path / "run/manifest.json").write_text('{"schema": 99}')
    with TestClient(application(Live(tmp_path, {})), base_url="http://localhost") as browser:
        answer = browser.get("/run/run")
        assert answer.status_code == 409
        assert "upgrade" in answer.text


def test_a_run_without_any_step(tmp_path: Path) -> None:
    run = steadyrun.record(tmp_path / "run")
    with TestClient(application(Live(tmp_path, {})), base_url="http://localhost") as browser:
        assert "cannot tell" in browser.get("/run/run").text
        assert browser.get("/api/run/run/data").json()["panels"] == []
    run.close()


def test_a_root_that_is_a_run(root: Path) -> None:
    with TestClient(application(Live(root / "a", {})), base_url="http://localhost") as browser:
        assert browser.get("/api/runs").json()["rows"][0]["key"] == ""
        assert browser.get("/run/").status_code == 200
        assert browser.get("/api/run//data").status_code == 200


def test_an_empty_root_says_how_to_record(tmp_path: Path) -> None:
    with TestClient(application(Live(tmp_path, {})), base_url="http://localhost") as browser:
        assert "steadyrun.record(" in browser.get("/").text
        assert browser.get("/api/runs").json()["rows"] == []
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_takes_nothing_is_let_go_without_a_word() -> None:
    from sse_starlette.sse import SendTimeoutError

    from steadyrun.live.server import _is_news

    def record(message: str, problem: Exception | None = None) -> logging.LogRecord:
        info = None if problem is None else (type(problem), problem, None)
        return logging.LogRecord("uvicorn.error", logging.ERROR, "", 0, message, None, info)

    assert not _is_news(record("Exception in ASGI application", SendTimeoutError()))
    assert not _is_news(record("Cancel 2 running task(s), timeout graceful shutdown exceeded"))
    assert _is_news(record("Exception in ASGI application", ValueError()))
