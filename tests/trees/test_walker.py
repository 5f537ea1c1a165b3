"""The engine: order, the first fault, edges, what a symptom becomes, and a question that fails."""

from __future__ import annotations

import pytest
from synthetic import Synthetic

from steadyrun.errors import UsageError
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold, node
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.run_signals import Signals
from steadyrun.trees import QUESTIONS
from steadyrun.trees.walker import Walk, walk

EMPTY = Signals(Synthetic())


def question(code: str, answer: str = PASS, edge: tuple[str, ...] = ()) -> Question:
    outcomes = (
        Outcome(name="pass", answer=PASS, meaning="fine"),
        Outcome(name="bad", answer=FAULT, meaning="bad", fix="Mend it."),
        Outcome(name="odd", answer=NOTE, meaning="odd"),
    )
    names = {PASS: "pass", FAULT: "bad", NOTE: "odd"}
    thresholds = (Threshold(name="high", value=5, unit="", meaning="the limit", seed="5", decision="as specified"),)

    def find(_run: Signals, _limit: Limits) -> Finding:
        if answer not in names:
            raise MissingSignal("loss") if answer == "missing" else ZeroDivisionError("strange")
        return Finding(names[answer], "measured 1, limit 2")

    asked = Question(code, f"question {code}", "Is it?", "Because.", ("loss",), 1, thresholds, outcomes, find)
    return node(asked, {"bad": edge, "odd": edge} if edge else None)


def walked(*questions: Question, go_on: bool = False) -> Walk:
    return walk({each.code: each for each in questions}, EMPTY, {}, go_on=go_on)


def path(found: Walk) -> list[tuple[str, str]]:
    return [(asked.question.code, asked.answer.kind) for asked in found.path]


def test_all_pass() -> None:
    found = walked(question("C1.1"), question("C1.2"), question("C2.1"))
    assert path(found) == [("C1.1", "pass"), ("C1.2", "pass"), ("C2.1", "pass")]
    assert found.leaf is None
    assert found.not_reached == ()


def test_the_first_fault_ends_the_walk() -> None:
    found = walked(question("C1.1"), question("C1.2", FAULT), question("C2.1", FAULT))
    assert path(found) == [("C1.1", "pass"), ("C1.2", "fault")]
    assert found.leaf is not None
    assert found.leaf.question.code == "C1.2"
    assert [q.code for q in found.not_reached] == ["C2.1"]


def test_all_goes_on_and_the_leaf_is_still_the_first() -> None:
    found = walked(question("C1.1"), question("C1.2", FAULT), question("C2.1", FAULT), go_on=True)
    assert [kind for _, kind in path(found)] == ["pass", "fault", "fault"]
    assert found.leaf is not None
    assert found.leaf.question.code == "C1.2"


def test_an_edge_is_followed_and_the_cause_is_the_leaf() -> None:
    found = walked(question("C1.1", FAULT, edge=("C5",)), question("C2.1"), question("C5.1"), question("C5.2", FAULT))
    assert path(found) == [("C1.1", "note"), ("C5.1", "pass"), ("C5.2", "fault")]
    assert found.leaf is not None
    assert found.leaf.question.code == "C5.2"
    assert found.leaf.because_of == "C1.1"
    assert "C5.2 finds the cause" in found.path[0].answer.message


def test_a_symptom_without_a_cause_is_the_leaf_itself() -> None:
    found = walked(question("C1.1", FAULT, edge=("C5",)), question("C2.1"), question("C5.1"))
    assert path(found) == [("C1.1", "fault"), ("C5.1", "pass")]
    assert found.leaf is not None
    assert found.leaf.question.code == "C1.1"


def test_a_note_with_an_edge_sends_there_first_and_the_walk_goes_on() -> None:
    found = walked(question("C1.1", NOTE, edge=("C5",)), question("C2.1"), question("C5.1"))
    assert path(found) == [("C1.1", "note"), ("C5.1", "pass"), ("C2.1", "pass")]


def test_several_edges_and_edges_of_edges() -> None:
    found = walked(
        question("C1.1", FAULT, edge=("C5", "C1.2")),
        question("C1.2", NOTE, edge=("C6",)),
        question("C5.1"),
        question("C6.1", FAULT),
    )
    assert path(found) == [("C1.1", "note"), ("C5.1", "pass"), ("C1.2", "note"), ("C6.1", "fault")]


def test_an_edge_to_a_question_already_asked_asks_it_once() -> None:
    found = walked(question("C1.1", NOTE), question("C1.2", FAULT, edge=("C1",)), go_on=True)
    assert path(found) == [("C1.1", "note"), ("C1.2", "fault")]


def test_an_edge_to_a_tree_that_is_not_there() -> None:
    found = walked(question("C3.2", NOTE, edge=("D2",)), question("C4.1"))
    assert path(found) == [("C3.2", "note"), ("C4.1", "pass")]


def test_what_cannot_be_told_does_not_end_the_walk() -> None:
    found = walked(question("C1.1", "missing"), question("C1.2"))
    assert path(found) == [("C1.1", "cannot-tell"), ("C1.2", "pass")]
    assert found.path[0].answer.missing == ("loss",)


def test_a_question_that_fails_cannot_tell_and_the_others_are_asked() -> None:
    found = walked(question("C1.1", "broken"), question("C1.2"))
    assert path(found) == [("C1.1", "cannot-tell"), ("C1.2", "pass")]
    assert "ZeroDivisionError" in found.path[0].answer.message


def test_an_unknown_threshold_is_an_error_not_an_answer() -> None:
    with pytest.raises(UsageError, match="unknown threshold 'hihg'"):
        walk({"C1.1": question("C1.1")}, EMPTY, {"C1.1": {"hihg": 1.0}})


def test_every_edge_of_the_real_questions_leads_to_a_question() -> None:
    for each in QUESTIONS.values():
        for outcome, targets in each.edges.items():
            for target in targets:
                assert any(code == target or code.startswith(f"{target}.") for code in QUESTIONS), (each.code, outcome)


READING_ORDER = "S1.1 S1.2 S3.1 S3.2 S2.1 S2.2 S1.3 S1.5 S4.1 S4.2 S4.3 S5.1 S5.2 S6.1 S6.2 S6.3 S7.1 S7.2 S1.4"


def test_the_trees_go_by_their_codes_and_the_signatures_by_the_order_of_reading() -> None:
    trees = [code for code in QUESTIONS if code[0] in "CD"]
    audits = [code for code in QUESTIONS if code.startswith("A")]
    ranks = [code for code in QUESTIONS if code.startswith("R")]
    trained_on = [code for letter in "MLG" for code in sorted(QUESTIONS) if code.startswith(letter)]
    assert (trees, audits, ranks) == (sorted(trees), sorted(audits), sorted(ranks))
    signs = ["F1.1", *(f"V1.{number}" for number in range(1, 9))]
    assert list(QUESTIONS) == [*trees, *READING_ORDER.split(), *audits, *ranks, *trained_on, *signs]
