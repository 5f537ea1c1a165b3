"""Every command of the tutorial, the how-to pages and their like is executed, and prints what the page shows."""

from pathlib import Path

import executed_pages
import pytest

from steadyrun.report.limits import everything

NAMED = {str(page.relative_to(executed_pages.HERE)): page for page in executed_pages.PAGES}


@pytest.mark.long
@pytest.mark.parametrize("name", NAMED)
def test_a_page(name: str, tmp_path: Path) -> None:
    for shown in executed_pages.executed(NAMED[name].read_text(), tmp_path):
        difference = executed_pages.difference(shown.expected, shown.actual)
        assert difference is None, f"$ {shown.command}\n{difference}\n{shown.actual}\nto refresh it: make docs"


def test_every_how_to_page_has_its_sections() -> None:
    pages = [page for name, page in NAMED.items() if name.startswith("how-to/") and page.name != "README.md"]
    assert len(pages) == 7
    for page in pages:
        text = page.read_text()
        assert all(f"\n## {heading}" in text for heading in ("What you see", "Typical causes")), page.name
        assert "```console\n$ steadyrun" in text or "```python" in text, page.name
        assert f"({page.name})" in (page.parent / "README.md").read_text()


def test_no_block_is_left_out() -> None:
    """A block of commands that nobody executes would be marked as sh, bash or shell."""
    for name, page in NAMED.items():
        kinds = {part["kind"] for part in executed_pages.PART.finditer(page.read_text()) if part["kind"]}
        assert kinds <= {"python", "console", "diff"}, f"{name}: {kinds}"


def test_every_question_that_a_page_links_to_exists() -> None:
    for code in everything():
        assert (executed_pages.HERE / "questions" / f"{code}.md").exists()


@pytest.mark.parametrize(
    ("page", "printed"),
    [
        ("loss 0.3049 at step 120 (D1.3)", "loss 0.3051 at step 120 (D1.3)"),
        ("a  wrapped\n  line", "a wrapped line"),
        ("it took 2.1 s on 2026-11-18", "it took 90 s on 2027-01-02"),
        ("peak nan, 5 of 128", "peak nan, 5 of 128"),
        ("0.03, 1.2e-05", "0.04, 1.3e-05"),
    ],
)
def test_output_agrees(page: str, printed: str) -> None:
    assert executed_pages.difference(page, printed) is None


@pytest.mark.parametrize(
    ("page", "printed"),
    [
        ("loss 0.3049", "loss 0.35"),
        ("fault D1.3", "fault D1.2"),
        ("healthy", "fault"),
        ("one line", "one line more"),
        ("", "something"),
        ("peak nan", "peak 3.2"),
    ],
)
def test_output_differs(page: str, printed: str) -> None:
    assert executed_pages.difference(page, printed) is not None


def test_a_page_is_refreshed(tmp_path: Path) -> None:
    page = "```python title=\"a.py\"\nprint('new')\n```\n\n```console\n$ python a.py\nold\n```\n"
    assert executed_pages.refreshed(page) == page.replace("old", "new")


def test_a_diff_must_fit_once(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\nx = 1\n")
    with pytest.raises(ValueError, match="2 places"):
        executed_pages.write(tmp_path / "a.py", "-x = 1\n+x = 2\n", change=True)
    executed_pages.write(tmp_path / "a.py", " x = 1\n-x = 1\n+x = 2\n", change=True)
    assert (tmp_path / "a.py").read_text() == "x = 1\nx = 2\n"


@pytest.mark.parametrize("command", ["false; exit 2", "python -c 'raise ValueError'", "no-such-command"])
def test_a_command_that_fails_is_not_shown(command: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        executed_pages.run(command, tmp_path)
