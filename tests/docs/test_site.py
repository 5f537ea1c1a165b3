"""The docs site builds strictly, loads nothing from elsewhere, and has every page in its navigation."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import site_pages

import steadyrun

ROOT = Path(__file__).parents[2]
LOADS = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


class Loads(HTMLParser):
    """What a browser loads with a page; links that a reader may follow are not among them."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(LOADS.get(tag, ""))
        self.addresses += [address] if address else []
        self.addresses += re.findall(r"url\(([^)]+)\)", dict(attrs).get("style") or "")


def loaded_by(page: Path) -> list[str]:
    parser = Loads()
    parser.feed(page.read_text())
    return parser.addresses


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 150
    for page in pages:
        for address in loaded_by(page):
            assert not re.match(r"(\w+:)?//", address), f"{page.relative_to(site)} loads {address}"
            local = address.partition("?")[0].partition("#")[0]
            if page.name != "404.html":  # its addresses begin at the root, since no one knows where it is shown
                assert (page.parent / local).exists(), f"{page.relative_to(site)} loads {address}, which is missing"
    for style in site.rglob("*.css"):
        assert not re.search(r"@import|url\([\"']?(https?:)?//", style.read_text()), style.name


def test_search_works_without_a_server(site: Path) -> None:
    assert (site / "search" / "search_index.js").read_text().startswith("var __index = ")
    assert "assets/iframe-worker.js" in loaded_by(site / "index.html")


def test_search_finds_a_page_in_a_browser(site: Path, show: Callable[..., Any]) -> None:
    tab = show(site / "index.html", "input.md-search__input")
    tab.page.fill("input.md-search__input", "vital sign")
    tab.page.wait_for_selector(".md-search-result__item")
    found = tab.page.locator(".md-search-result__item").all_inner_texts()
    assert any("vital" in text.lower() for text in found)
    assert tab.outside == []


def test_every_page_is_in_the_navigation() -> None:
    from mkdocs.config import load_config
    from mkdocs.structure.files import get_files, set_exclusions
    from mkdocs.structure.nav import get_navigation

    config = load_config(str(ROOT / "mkdocs.yml"))
    files = get_files(config)
    set_exclusions(files, config)
    files = config.plugins.on_files(files, config=config)
    shown = {page.file.src_uri for page in get_navigation(files, config).pages}
    assert shown == {file.src_uri for file in files.documentation_pages()}
    assert {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")} <= shown


def test_the_api_page_has_every_public_name(site: Path) -> None:
    page = (site / "api.html").read_text()
    for name in steadyrun.__all__:
        assert re.search(rf'<h3 id="steadyrun\.[\w.]+\.{name}"', page), name


def test_links_that_leave_docs_lead_to_copies() -> None:
    text = "[a](../CONTRIBUTING.md#a-release) [b](../README.md) [c](replay.md#the-task) [d](generate.py)"
    copied = (
        "[a](repository/CONTRIBUTING.md#a-release) [b](index.md) [c](replay.md#the-task) "
        "[d](repository/docs/generate.py)"
    )
    assert site_pages.as_site(text, "recording.md") == copied
    assert site_pages.as_site("[e](docs/trial.md)", "repository/CHANGELOG.md") == "[e](../trial.md)"


def test_lists_are_indented_for_python_markdown() -> None:
    page = "Text:\n- one\n  - two\n\n```\n- code\n  - code\n```\n"
    assert site_pages.as_site(page, "a.md") == "Text:\n\n- one\n    - two\n\n```\n- code\n  - code\n```\n"


def test_titles_are_those_of_the_pages(site: Path) -> None:
    """A comment before the title of a generated page does not hide it."""
    assert site_pages.as_site("<!-- generated -->\n\n# D1.3 origin\n", "questions/D1.3.md") == "# D1.3 origin\n"
    assert "Python API" in (site / "series.html").read_text()  # in the navigation
