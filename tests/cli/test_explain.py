"""`steadyrun explain` as a person types it."""

import json
from typing import Any

import pytest
from terminal import in_terminal
from typer.testing import CliRunner

from steadyrun.cli import app
from steadyrun.report.limits import everything

runner = CliRunner()
QUESTIONS = everything()


def explain(*arguments: str) -> Any:
    return runner.invoke(app, ["explain", *arguments])


@pytest.mark.parametrize("code", QUESTIONS)
def test_every_question_has_a_page(code: str) -> None:
    result = explain(code)
    assert result.exit_code == 0, result.output
    question = QUESTIONS[code]
    lines = result.stdout.splitlines()
    assert lines[0] == f"{code} {question.name}"
    assert f"  {question.asks}" in lines
    for threshold in question.thresholds:
        assert any(line.startswith(f"  {threshold.name} = {threshold.value:g}") for line in lines)
        assert f"    - decision: {threshold.decision}" in lines
    for outcome in question.outcomes:
        assert not outcome.fix or f"    - fix: {outcome.fix}" in lines
    assert result.stderr == ""


def test_a_code_in_any_case() -> None:
    assert explain("c1.1").stdout == explain("C1.1").stdout


def test_without_a_code_all_questions_are_listed() -> None:
    lines = explain().stdout.splitlines()
    assert lines[0] == "C1 the first step"
    assert [line.split()[0] for line in lines if line.startswith("  ")] == list(QUESTIONS)


def test_a_section() -> None:
    lines = explain("C1").stdout.splitlines()
    assert {line.split()[0].partition(".")[0] for line in lines} == {"C1"}
    assert any(line.startswith("  C1.1 ") for line in lines)


def test_json() -> None:
    found = json.loads(explain("C1.1", "--json").stdout)
    assert found["code"] == "C1.1"
    assert {"name", "value", "unit", "meaning", "specification", "decision", "measured"} == set(found["thresholds"][0])
    assert {
        "name",
        "answer",
        "meaning",
        "fix",
        "experiment",
        "edge",
        "may_pass",
        "panel",
        "explains",
        "proved",
        "symptom",
    } == set(found["outcomes"][0])
    assert [each["code"] for each in json.loads(explain("--json").stdout)] == list(QUESTIONS)


def test_an_unknown_code_is_an_error_that_helps() -> None:
    result = explain("C1.7")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "there is no question 'C1.7'; did you mean C1." in result.stderr
    assert "steadyrun explain" in result.stderr


def test_a_terminal_gets_lines_that_fit() -> None:
    code, text = in_terminal("explain", "C1.1", columns=60)
    assert code == 0
    assert "\x1b[1mC1.1 initial loss" in text
    assert max(map(len, text.splitlines())) <= 60
    assert "\x1b" not in in_terminal("explain", "C1.1", NO_COLOR="1")[1]


def test_the_trees_can_be_seen() -> None:
    shown = runner.invoke(app, ["explain", "tree"])
    assert shown.exit_code == 0
    assert "high → C5, C1.2" in shown.stdout
    trees = json.loads(runner.invoke(app, ["explain", "tree", "--json"]).stdout)
    assert trees["configuration"][0]["edges"]["high"] == ["C5", "C1.2"]
