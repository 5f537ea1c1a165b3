"""A real browser: Debian's chromium, driven by playwright. `make test` installs it; without it, tests are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Tab:
    """An open page, and what it said and asked for."""

    page: Any
    said: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    @property
    def outside(self) -> list[str]:
        """Requests for anything but the file itself."""
        return [url for url in self.requests if not url.startswith(("file://", "data:", "blob:"))]

    def ranges(self) -> list[list[float]]:
        """The steps that each panel shows."""
        found: list[list[float]] = self.page.evaluate(
            "[...document.querySelectorAll('.plot')].map(plot => plot.layout.xaxis.range)"
        )
        return found


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("NO BROWSER: install chromium (apt-get install chromium), or let `make test` do it as root")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def show(chromium: Any) -> Iterator[Callable[..., Tab]]:
    """`show(file or address, **context)`: open a page and wait until its panels are drawn, or for `until`."""
    contexts = []

    def open_tab(file: Path | str, until: str = "html[data-drawn]", **options: Any) -> Tab:
        context = chromium.new_context(**{"viewport": {"width": 1440, "height": 900}} | options)
        contexts.append(context)
        tab = Tab(context.new_page())
        tab.page.on("console", lambda message: tab.said.append(f"{message.type}: {message.text}"))
        tab.page.on("pageerror", lambda error: tab.said.append(str(error)))
        tab.page.on("dialog", lambda dialog: (tab.said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        tab.page.on("request", lambda request: tab.requests.append(request.url))
        tab.page.goto(file if isinstance(file, str) else file.as_uri())
        tab.page.wait_for_selector(until)
        return tab

    yield open_tab
    for context in contexts:
        context.close()
