"""The hand-written pages keep to plain English: no phrase that a reader would stumble over."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
OTHERS = ("import/", "integrations/", "questions/")  # written elsewhere
GENERATED = ("<!-- generated",)
PHRASES = (
    r"(?<!there )\b(is|are) no\b(?! (better|more|longer))",
    r", too\b",
    r"\bthe moment\b",
    r"\b(tell|tells|told)\b(?<!cannot tell)(?<!nothing-to-tell)(?<!not-told)(?<!cannot-tell)",
    r"\bheld against\b",
    r"\bone (sees|asks|knows|reads|uses)\b",
    r"\b(said|given up)\b",
    r"\bspeaks? (for|against)\b",
    r"\bin the place of\b",
    r"\bof its own accord\b",
    r"\bgoes without saying\b",
)


def pages() -> list[Path]:
    named = {page.relative_to(DOCS).as_posix(): page for page in DOCS.rglob("*.md")}
    mine = [page for name, page in named.items() if not name.startswith(OTHERS)]
    return [page for page in mine if not page.read_text().startswith(GENERATED)]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_a_page_is_plain_english(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"`[^`\n]+`", "", prose)
    for phrase in PHRASES:
        found = re.search(f".*{phrase}.*", prose, re.IGNORECASE)
        assert found is None, f"{page.name}: {found and found[0]}"
