"""What a trial says of a run, in `check`: a suspect becomes a fault or is cleared, and the command that decides it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import steadyrun
from steadyrun.preflight import PROBES
from steadyrun.questions.form import FAULT, NOTE, SUSPECT, Answer, Outcome, Question
from steadyrun.report.kept_answers import cannot_be_asked
from steadyrun.report.ranking import ranked
from steadyrun.report.trial_answers import CHANGES, trial_command, with_trial
from steadyrun.trees import QUESTIONS
from steadyrun.trees.walker import Asked
from steadyrun.trial.verdict import CAUSES


def suspect(code: str, outcome: str) -> Asked:
    named = Outcome(name=outcome, answer=SUSPECT, meaning="something", experiment="train it")
    question = Question(code, "a question", "?", "", (), None, (), (named,), cannot_be_asked)
    return Asked(question, Answer(SUSPECT, outcome, "it looks wrong.", experiment="train it"), {})


def kept(root: Path, **content: Any) -> Path:
    base = {
        "schema": 1,
        "verdict": "fault",
        "code": "C7.3",
        "outcome": "too-strong",
        "message": "no weight decay: 1 not 2",
    }
    (root / "trial.json").write_text(json.dumps(base | {"tested": ["C7.2", "C7.3"]} | content), "utf-8")
    return root


def test_a_trial_turns_a_suspect_into_a_fault(tmp_path: Path) -> None:
    (found,) = with_trial([suspect("C7.3", "too-strong")], kept(tmp_path))
    assert found.answer.kind == FAULT
    assert found.answer.message == "A trial decides: no weight decay: 1 not 2 The record: it looks wrong."
    assert "weight decay" in found.answer.fix


def test_a_fault_that_the_record_does_not_show_is_added(tmp_path: Path) -> None:
    first, second = with_trial([suspect("V1.2", "no-better")], kept(tmp_path))
    assert (first.answer.kind, second.answer.kind) == (SUSPECT, FAULT)
    assert ranked([first, second]).headline is second


def test_other_suspects_that_were_tested_are_cleared(tmp_path: Path) -> None:
    answers = with_trial(
        [suspect("C7.2", "rate-too-high"), suspect("S1.4", "unrelated")], kept(tmp_path, verdict="clear")
    )
    assert [asked.answer.kind for asked in answers] == [NOTE, SUSPECT]
    assert "A trial cleared it" in answers[0].answer.message


def test_an_undecided_trial_changes_nothing(tmp_path: Path) -> None:
    asked = suspect("C7.3", "too-strong")
    assert with_trial([asked], kept(tmp_path, verdict="undecided")) == (asked,)


def test_the_command_of_a_suspect_names_its_changes() -> None:
    asked = suspect("C7.3", "too-strong")
    assert trial_command(asked, "experiments/a b", "train:task") == (
        "trial train:task --run 'experiments/a b' --only decay,rate"
    )
    assert trial_command(suspect("V1.2", "no-better"), "x", "") == "trial YOUR_SCRIPT.py:FUNCTION --run x"
    assert trial_command(None, "x", "") == ""


def test_every_cause_is_an_outcome_of_its_question() -> None:
    questions = {question.code: question for question in (*QUESTIONS.values(), *PROBES.values())}
    for code, outcome in CAUSES.values():
        if code.startswith("T"):
            continue
        both = [QUESTIONS.get(code), PROBES.get(code)]
        names = {each.name for question in both if question is not None for each in question.outcomes}
        assert outcome in names, (code, outcome)
    assert set(CHANGES) <= set(questions)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_content_is_data(tmp_path_factory: pytest.TempPathFactory, content: Any) -> None:
    root = tmp_path_factory.mktemp("run")
    asked = suspect("C7.3", "too-strong")
    (root / "trial.json").write_text(json.dumps(content), "utf-8")
    assert with_trial([asked], root) == (asked,)
    kept(root, message=content, code=content, tested=content, fix=content)
    assert with_trial([asked], root)


def test_check_shows_the_trial_of_a_run(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path, config={"seed": 1}) as run:
        for step in range(200):
            run.log(loss=2.0 - 0.005 * step)
    kept(tmp_path)
    report = steadyrun.check(tmp_path)
    assert report.headline is not None
    assert report.headline.question.code == "C7.3"
    assert "A trial decides" in str(report)
    assert report.to_dict()["headline"]["proof"] == "trial"
    assert report.exit_code == 1
