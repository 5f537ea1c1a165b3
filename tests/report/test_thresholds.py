"""Thresholds that the user changed, and where."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import few_questions, only

from steadyrun.errors import UsageError
from steadyrun.report.limits import changes, parsed


@pytest.fixture(autouse=True)
def _few_questions() -> Iterator[None]:
    with only(few_questions()):
        yield


def test_given_ones(tmp_path: Path) -> None:
    assert changes({"C1.1.high": 8, "c4.1.high": np.float32(2)}, tmp_path) == {
        "C1.1": {"high": 8.0},
        "C4.1": {"high": 2.0},
    }
    assert changes({}, tmp_path) == {}


@pytest.mark.parametrize(
    "section",
    [
        '[thresholds."C1.1"]\nhigh = 8',
        '[thresholds]\n"C1.1.high" = 8',
        "[thresholds.C1.1]\nhigh = 8.0",
        "[thresholds]\nC1.1.high = 8",
    ],
)
def test_every_spelling_in_a_file(section: str, tmp_path: Path) -> None:
    (tmp_path / "steadyrun.toml").write_text(section)
    assert changes({}, tmp_path) == {"C1.1": {"high": 8.0}}


def test_pyproject(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.steadyrun.thresholds."C1.1"]\nhigh = 7')
    assert changes({}, tmp_path) == {"C1.1": {"high": 7.0}}


def test_precedence(tmp_path: Path) -> None:
    names = ("C1.1", "C4.1", "D1.1")
    for file, keys in (("pyproject.toml", names), ("steadyrun.toml", names[:2])):
        table = "thresholds" if file == "steadyrun.toml" else "tool.steadyrun.thresholds"
        value = 2 if file == "steadyrun.toml" else 1
        (tmp_path / file).write_text(f"[{table}]\n" + "\n".join(f"{name}.high = {value}" for name in keys))
    changed = changes({"C1.1.high": 3}, tmp_path)
    assert {code: named["high"] for code, named in changed.items()} == {"C1.1": 3, "C4.1": 2, "D1.1": 1}


def test_the_nearest_folder_with_a_section_counts(tmp_path: Path) -> None:
    here = tmp_path / "project" / "deep" / "deeper"
    here.mkdir(parents=True)
    (tmp_path / "steadyrun.toml").write_text("[thresholds]\nC4.1.high = 1")
    (tmp_path / "project" / "steadyrun.toml").write_text("[thresholds]\nC1.1.high = 2")
    (here / "pyproject.toml").write_text("[project]\nname = 'x'")
    assert changes({}, here) == {"C1.1": {"high": 2.0}}


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ("[thresholds]\nC1.1.hihg = 8", "there is no threshold 'C1.1.hihg'; did you mean C1.1.high?"),
        ("[thresholds]\nC1.11.high = 8", "there is no question 'C1.11'; did you mean C1.1"),
        ("[thresholds]\nZ9.high = 8", "there are: C1.1, C4.1, D1.1, D2.1, D4.1"),
        ("[thresholds]\nhigh = 8", "there is no question 'high'"),
        ('[thresholds]\n"C1.1" = 8', "there is no threshold 'C1.1'; did you mean C1.1."),
        ("[thresholds]\nC1.1.high = '8'", "C1.1.high must be a number, got '8'"),
        ("[thresholds]\nC1.1.high = true", "must be a number, got True"),
        ("[thresholds]\nC1.1.high = inf", "must be finite, got inf"),
        ("[thresholds]\nC1.1.high = nan", "must be finite, got nan"),
        (f"[thresholds]\nC1.1.high = 1{'0' * 400}", "must be finite, got inf"),
        ("thresholds = 8", "must be a table"),
        ("[thresholds]\nC1.1.high = = 8", "line 2"),
    ],
)
def test_a_mistake_in_a_file_is_one_clear_error(section: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "steadyrun.toml").write_text(section)
    with pytest.raises(UsageError) as error:
        changes({}, tmp_path)
    assert problem in str(error.value)
    assert str(tmp_path / "steadyrun.toml") in str(error.value)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "steadyrun.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="cannot be read"):
        changes({}, tmp_path)


def test_a_mistake_on_the_command_line(tmp_path: Path) -> None:
    given: Any = {"C1.1.high": "many"}
    with pytest.raises(UsageError, match=r"the given thresholds: C1\.1\.high must be a number"):
        changes(given, tmp_path)


def test_assignments() -> None:
    assert parsed(["C1.1.high=8", " C4.1.high = 1e3"]) == {"C1.1.high": 8.0, "C4.1.high": 1000.0}
    for wrong in ("C1.1.high", "C1.1.high=", "C1.1.high=many"):
        with pytest.raises(UsageError, match="is not NAME=NUMBER"):
            parsed([wrong])
