"""Hooks of the docs site (mkdocs.yml): pages are written for GitHub, and work on the site unchanged.

- A link that leaves docs/ leads to a copy of that file under `repository/`; a linked page is part of the site.
- `folder/*` in the navigation stands for every page of that folder.
- Lists are indented as GitHub has it (two spaces); Python-Markdown wants four, and an empty line before a list.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
OUTSIDE = "repository/"  # where files from outside of docs/ are on the site
FRONT_PAGE = {"README.md": "index.md"}  # the site has its own front page
LINK = re.compile(r"(?<=\]\()(?P<path>[^)\s#:<>]+)(?=[)#])")
ITEM = re.compile(r"^(?P<indent> *)(?:[-*+]|\d+\.) ")
FENCE = re.compile(r"^ *(```+|~~~+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what pages link to outside of docs/, and what those pages link to."""
    waiting = [file.src_uri for file in files.documentation_pages()]
    seen = set(waiting)
    while waiting:
        page = waiting.pop()
        for _, target in _links(page, source_of(page).read_text(encoding="utf-8")):
            if target.startswith(OUTSIDE) and target not in seen:
                files.append(File.generated(config, target, abs_src_path=str(source_of(target))))
                seen.add(target)
                waiting += [target] if target.endswith(".md") else []
    _expand(config.nav, sorted(seen | {file.src_uri for file in files.documentation_pages()}))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """The page as Python-Markdown reads it."""
    return as_site(markdown, page.file.src_uri)


def as_site(markdown: str, page: str) -> str:
    """A page of the repository with links and lists as the site needs them."""
    here = posixpath.dirname(page)
    text = re.sub(r"\A<!--.*?-->\s*", "", markdown, flags=re.DOTALL)  # before the title, it would hide it
    targets = dict(_links(page, text))
    linked = LINK.sub(lambda link: posixpath.relpath(targets[link[0]], here) if link[0] in targets else link[0], text)
    return "\n".join(_lists(linked.split("\n")))


def source_of(page: str) -> Path:
    """The file behind a page of the site."""
    return ROOT / page.removeprefix(OUTSIDE) if page.startswith(OUTSIDE) else ROOT / "docs" / page


def _links(page: str, markdown: str) -> Iterator[tuple[str, str]]:
    """Every relative link to a file of the repository, and that file's page or copy on the site."""
    for path in set(LINK.findall(markdown)):
        file = Path(os.path.normpath(source_of(page).parent / path))
        if file.is_file() and file.is_relative_to(ROOT):
            inside = file.relative_to(ROOT).as_posix()
            yield path, FRONT_PAGE.get(inside) or inside.removeprefix("docs/") if _in_docs(inside) else OUTSIDE + inside


def _in_docs(file: str) -> bool:
    return file in FRONT_PAGE or (file.startswith("docs/") and not file.endswith(".py"))


def _expand(nav: list[Any] | None, pages: list[str]) -> None:
    """Replace each `folder/*` of the navigation, in place, by the pages of that folder."""
    for index, item in enumerate(nav or []):
        if isinstance(item, dict):
            ((title, value),) = item.items()
            item[title] = _pages_of(value, pages) if isinstance(value, str) and value.endswith("/*") else value
            _expand(item[title] if isinstance(item[title], list) else None, pages)
        elif item.endswith("/*"):
            assert nav is not None
            nav[index : index + 1] = _pages_of(item, pages)


def _pages_of(pattern: str, pages: list[str]) -> list[str]:
    folder = pattern.removesuffix("*")
    inside = [page for page in pages if page.startswith(folder) and page.endswith(".md")]
    return sorted(inside, key=lambda page: (not page.endswith(f"{folder}README.md"), page))


def _lists(lines: list[str]) -> Iterator[str]:
    """Lines outside of code, with list items indented by four and an empty line before each list."""
    code, before = "", ""
    for line in lines:
        fence = FENCE.match(line)
        if fence and (not code or line.strip() == code):
            code = "" if code else fence[1]
        item = None if code or fence else ITEM.match(line)
        if item and before.strip() and not ITEM.match(before) and not before.startswith(" "):
            yield ""
        yield " " * len(item["indent"]) + line if item else line
        before = line
