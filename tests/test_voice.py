"""Everything a person reads is plain English: no phrase that sounds translated, no word that is ours alone."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PHRASES = {
    r", too\b(?!-|\w| (?:many|few|much|large|small|high|low|short|long|little|wide|far|slow|early|late))": "also",
    r"(?<![Tt]here )\b(?:is|are|was|were) no (?!longer\b|more\b|less\b|better\b|worse\b|larger\b|smaller\b|higher\b"
    r"|lower\b|\w+ than\b)\w+": "is not a ...",
    r"(?<!-)\btold\b": "reported, shown",
    r"\btells\b": "reports, shows",
    r"\bthe moment\b": "the step, the incident",
    r"\bheld against\b": "compared with",
    r"\bwalk again\b": "run `steadyrun check` again",
    r"\bhealthy tutors\b": "healthy runs",
    r"\bspecification:": "(leave out)",
    r"\bone (?:does not notice|can see|knows|sees|asks|reads|looks|wants)\b": "you",
    r"(?<![Ss]tandard )(?<!absolute )(?<!`)(?<!\| )(?<!\*)\bdeviations?\b": "standard deviation, σ",
    r"\b[Ss]hares? of\b": "fraction of",
    r"\bthe middle of the\b": "the median of the",
    r"\btraining copes\b": "training continues",
    r"\bwhom\b": "which",
    r"\bis given up\b": "is disabled",
    r"\ball the same\b": "still",
    r"\bof itself\b": "by itself",
    r"\bgoes without saying\b": "(leave out)",
    r"\bof its own accord\b": "by itself",
    r"\bin the place of\b": "instead of",
}
"""A phrase, and what to write instead."""


def texts(source: str) -> Iterator[tuple[int, str]]:
    """The strings, docstrings and comments of a program, each with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:  # others are names
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def found(line: int, text: str, where: str) -> Iterator[str]:
    for phrase, better in PHRASES.items():
        for match in re.finditer(phrase, text):
            at = line + text.count("\n", 0, match.start())
            yield f"{where}:{at}: {match.group()!r}: write {better!r}"


def prose(markdown: str) -> str:
    """A page without its code, line for line."""
    return re.sub(r"(?s)```.*?```|`[^`\n]*`", lambda code: "\n" * code.group().count("\n"), markdown)


SENTENCES = {"corpus.py"}  # what the tutor learns
PROGRAMS = sorted(path for path in (ROOT / "src").rglob("*.py") if path.name not in SENTENCES)
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])


def test_programs_speak_plainly() -> None:
    odd = [
        line
        for path in PROGRAMS
        for number, text in texts(path.read_text("utf-8"))
        for line in found(number, text, str(path.relative_to(ROOT)))
    ]
    assert not odd, "\n".join(odd)


def test_pages_speak_plainly() -> None:
    odd = [line for path in PAGES for line in found(1, prose(path.read_text("utf-8")), str(path.relative_to(ROOT)))]
    assert not odd, "\n".join(odd)


@pytest.mark.parametrize(
    ("text", "odd"),
    [
        ("Dropout explains it, too.", True),
        ("The rate is large, too large for this model.", False),
        ("Ctrl-C is no crash.", True),
        ("There is no file of this name.", False),
        ("It is no longer a fault.", False),
        ("3 deviations above the mean", True),
        ("one standard deviation above the mean", False),
        ("a share of the units", True),
    ],
)
def test_the_list_finds_what_it_should(text: str, odd: bool) -> None:
    assert bool(list(found(1, text, "here"))) == odd
