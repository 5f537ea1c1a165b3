"""Who may ask what: names of the server, tokens, methods, and the headers of every answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

import steadyrun
from steadyrun.live.app import Live, application
from steadyrun.live.guard import Guard

TOKEN = "a-long-and-secret-token"
QUICK = (
    "/",
    "/run/a",
    "/compare?run=a&run=b",
    "/assets/live.js",
    "/metrics",
    "/api/runs",
    "/api/run/a/data",
    "/api/run/a/panel/1?from=0&to=1",
    "/api/run/a/postmortem/7",
    "/api/compare?run=a&run=b",
    "/api/compare/panel/1?run=a&run=b&from=0&to=1",
)
ENDLESS = ("/api/runs/events", "/api/run/a/events")


def keep_incident(run: Path, step: int) -> None:
    """An incident as capture leaves it, and its post-mortem."""
    folder = run / "incidents" / f"step-{step:07d}"
    folder.mkdir(parents=True)
    (folder / "incident.json").write_text(json.dumps({"kind": "spike", "why": "the loss jumped", "step": step}))
    (run / "postmortems").mkdir()
    (run / "postmortems" / f"{folder.name}.md").write_text("# what happened\n")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    for name in "ab":
        with steadyrun.record(root / name) as run:
            for step in range(30):
                run.log(loss=3.0 - 0.01 * step)
        keep_incident(root / name, 7)
    return root


def client(root: Path, token: str | None = None, host: str = "127.0.0.1", base: str = "http://127.0.0.1") -> TestClient:
    return TestClient(application(Live(root, {}), token, host), base_url=base, follow_redirects=False)


@pytest.fixture(scope="module")
def locked(root: Path) -> Iterator[TestClient]:
    with client(root, TOKEN) as browser:
        yield browser


def test_the_lists_above_are_all_routes(root: Path) -> None:
    app: Any = application(Live(root, {}))
    assert isinstance(app, Guard)
    assert isinstance(app._app, Starlette)
    paths = {route.path for route in app._app.routes}  # type: ignore[attr-defined]
    asked = {path.partition("?")[0] for path in QUICK + ENDLESS}
    for name, example in (("{run:anypath}", "a"), ("{number:int}", "1"), ("{step:int}", "7"), ("{name}", "live.js")):
        paths = {path.replace(name, example) for path in paths}
    assert paths == asked


@pytest.mark.parametrize("path", [*QUICK, *ENDLESS, "/nothing", "/run/../../etc/passwd"])
@pytest.mark.parametrize(
    "given",
    [{}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {TOKEN}"}, {"authorization": f"Bearer {TOKEN}x"},
     {"cookie": "steadyrun=wrong"}, {"cookie": 'a="\\'}, {"authorization": "Bearer \u00ff"}],
)  # fmt: skip
def test_every_route_needs_the_token(locked: TestClient, path: str, given: dict[str, str]) -> None:
    answer = locked.get(path, headers={name: value.encode("latin-1") for name, value in given.items()})  # type: ignore[misc]
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "<" not in answer.text


@pytest.mark.parametrize("path", QUICK)
def test_the_token_opens_every_route(locked: TestClient, path: str) -> None:
    answer = locked.get(path, headers={"authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200, answer.text
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert "unsafe-eval" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"


def test_a_token_in_the_address_becomes_a_cookie(root: Path) -> None:
    with client(root, TOKEN) as browser:
        wrong = browser.get("/run/a?token=wrong")
        assert wrong.status_code == 401
        assert "set-cookie" not in wrong.headers
        answer = browser.get(f"/run/a?x=1&token={TOKEN}&y=%26")
        assert (answer.status_code, answer.headers["location"]) == (303, "/run/a?x=1&y=%26")
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert browser.get("/api/runs").status_code == 200  # by the cookie


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example", "///evil.example"])
def test_the_way_back_never_leads_elsewhere(root: Path, path: str) -> None:
    with client(root, TOKEN) as browser:
        sent = browser.build_request("GET", f"http://127.0.0.1/?token={TOKEN}")
        sent.url = sent.url.copy_with(raw_path=f"{path}?token={TOKEN}".encode())
        answer = browser.send(sent)
        assert answer.status_code == 303
        assert not answer.headers["location"].startswith(("//", "/\\"))


@pytest.mark.parametrize(
    ("host", "header", "status"),
    [
        ("127.0.0.1", "localhost:8410", 200),
        ("127.0.0.1", "127.0.0.1", 200),
        ("127.0.0.1", "[::1]:8410", 200),
        ("127.0.0.1", "LOCALHOST", 200),
        ("127.0.0.1", "evil.example", 400),
        ("127.0.0.1", "localhost.evil.example:80", 400),
        ("127.0.0.1", "", 400),
        ("127.0.0.1", "10.0.0.5:8410", 400),
        ("gpu7", "gpu7:8410", 200),
        ("gpu7", "gpu8:8410", 400),
        ("0.0.0.0", "10.0.0.5:8410", 200),
        ("0.0.0.0", "[fe80::1]:8410", 200),
        ("0.0.0.0", "evil.example", 400),
    ],
)
def test_names_that_the_server_answers_to(root: Path, host: str, header: str, status: int) -> None:
    with client(root, host=host) as browser:
        assert browser.get("/", headers={"host": header}).status_code == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"])
def test_only_get(root: Path, method: str) -> None:
    with client(root) as browser:
        answer = browser.request(method, "/")
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET")


def test_no_websockets(root: Path) -> None:
    from starlette.websockets import WebSocketDisconnect

    with client(root) as browser, pytest.raises(WebSocketDisconnect), browser.websocket_connect("/api/runs/events"):
        pass


def test_a_post_mortem_is_served_as_text_and_only_by_its_step(root: Path) -> None:
    with client(root) as browser:
        assert browser.get("/api/run/a/postmortem/7").text == "# what happened\n"
        missing = browser.get("/api/run/a/postmortem/8")
        assert missing.status_code == 404
        assert "steadyrun postmortem" in missing.text
