"""`tools/new_question.py` makes a question that works at once, and refuses what cannot be one."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from steadyrun.trees import QUESTIONS

ROOT = Path(__file__).parents[2]


def new_question(*arguments: str, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    script = str(root / "tools" / "new_question.py")
    return subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, timeout=300)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for folder in ("src", "docs", "tools", "tests/questions"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "images"))
    for file in ("pyproject.toml", "README.md", "tests/conftest.py", "tests/browsing.py", "tests/synthetic.py"):
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


def test_a_new_question_passes_its_tests(copy: Path) -> None:
    code = f"C4.{1 + max(int(code.partition('.')[2]) for code in QUESTIONS if code.startswith('C4.'))}"
    made = new_question(code, "loss-is-flat", "Is the loss flat?", root=copy)
    assert made.returncode == 0, made.stderr
    assert "Is the loss flat?" in (copy / "docs" / "questions" / f"{code}.md").read_text()
    assert f"[{code}]({code}.md) | loss is flat | Is the loss flat?" in (copy / "docs/questions/README.md").read_text()
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/questions/test_cases.py", "-v", "-k", code],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy / "src")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert tests.returncode == 0, tests.stdout
    assert re.search(rf"test_the_answer\[{code} not-applicable\] PASSED", tests.stdout)
    lint = [sys.executable, "-m", "ruff", "check", "--no-cache", "src/steadyrun/questions", "tests/questions"]
    assert subprocess.run(lint, cwd=copy).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("C4.1", "new", "Is it new?"), "C4.1 exists"),
        (("C4", "new", "Is it new?"), "is not a code"),
        (("c4.9", "new", "Is it new?"), "is not a code"),
        (("X1.1", "new", "Is it new?"), "begins with one of C, D, S, A"),
        (("P1.99", "new", "Is it new?"), "for a probe of preflight see CONTRIBUTING.md"),
        (("C99.1", "new", "Is it new?"), "section C99 has no title"),
        (("C4.99", "New Name", "Is it new?"), "is not a name"),
        (("C4.99", QUESTIONS["D2.2"].name.replace(" ", "-"), "Is it new?"), "another question has the name"),
        (("C4.99", "new", "It is new."), "is not one question"),
    ],
)
def test_what_cannot_be_a_question_is_refused(arguments: tuple[str, ...], words: str) -> None:
    refused = new_question(*arguments)
    assert refused.returncode == 2
    assert words in refused.stderr
    assert "Traceback" not in refused.stderr
