"""The gallery has a small picture and three lines for each fault of the tutor."""

import re
from pathlib import Path

import gallery
from PIL import Image

from steadyrun.report.file_formats import literal
from steadyrun.tutor.faults import FAULTS

PAGE = Path(gallery.HERE / "gallery.md").read_text()


def test_every_fault_has_an_entry() -> None:
    assert re.findall(r"^## (.+)$", PAGE, re.MULTILINE) == list(FAULTS)
    for fault in FAULTS.values():
        (entry,) = re.findall(rf"^## {fault.name}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
        lines = re.findall(r"^- \*\*(.+?)\*\*: (.+)$", entry, re.MULTILINE)
        assert [name for name, _ in lines] == ["What is wrong", "What you see", "The fix"]
        assert lines[0][1] == f"{literal(fault.summary)}.", "stale: run `make docs`"
        assert f"(images/gallery/{fault.name}.png)" in entry


def test_pictures_are_small() -> None:
    assert {file.stem for file in gallery.PICTURES.glob("*.png")} == set(FAULTS)
    for file in gallery.PICTURES.glob("*.png"):
        assert file.stat().st_size < 60_000, file.name
        with Image.open(file) as picture:
            assert 600 <= picture.width <= 900, file.name


def test_what_a_fault_shows_is_what_it_is_meant_to_show() -> None:
    """A fault with a leaf shows a fault; its question's page is linked."""
    for fault in FAULTS.values():
        (seen,) = re.findall(rf"^## {fault.name}\n.*?What you see\*\*: (\w+)", PAGE, re.MULTILINE | re.DOTALL)
        if fault.leaf and not fault.note:
            assert seen in ("fault", "suspect"), f"{fault.name}: {seen}"
        if fault.name == "healthy":
            assert seen == "the"
