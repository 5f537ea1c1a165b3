"""Two runs compared: what a fix did."""

from samples import asked, fault_report, healthy_report, report

from steadyrun.questions.form import CANNOT_TELL, FAULT, NOT_APPLICABLE, NOTE, PASS, Answer
from steadyrun.report import Report
from steadyrun.report.comparison import compare, sentences
from steadyrun.trees import QUESTIONS
from steadyrun.trees.walker import Asked


def told(new: Report, old: Report) -> list[str]:
    return [f"{symbol} {sentence}" for symbol, sentence in sentences(compare(new, old))]


def test_a_fault_that_went_away() -> None:
    comparison = compare(report(asked("C3.1", PASS)), report(asked("C3.1", FAULT, step=7), run="runs/old"))
    assert comparison.to_dict() == {
        "run": "runs/old",
        "leaf_gone": {"code": "C3.1", "outcome": "broken", "step": 7, "message": "message of C3.1"},
        "leaf_came": None,
        "changed": [
            {
                "code": "C3.1",
                "name": "first things",
                "was": "fault",
                "was_outcome": "broken",
                "now": "pass",
                "now_outcome": "pass",
                "message": "message of C3.1",
            }
        ],
    }
    assert sentences(comparison) == [
        ("✓", "gone: C3.1 first things, broken (now pass)"),
        ("·", "C3.1 first things: fault (broken) before, pass now"),
    ]


def test_a_fault_that_stays() -> None:
    comparison = compare(fault_report(), fault_report())
    assert (comparison.leaf_gone, comparison.leaf_came, comparison.changed) == (None, None, ())
    assert sentences(comparison) == [("✗", "still there: C3.1 first things, broken")]


def test_a_fault_that_came() -> None:
    comparison = compare(fault_report(), healthy_report())
    assert comparison.leaf_came is not None
    assert comparison.leaf_came.question.code == "C3.1"
    assert "✗ new fault: C3.1 first things, broken" in told(fault_report(), healthy_report())


def test_a_fault_that_was_hidden_behind_another() -> None:
    old = report(asked("C1.1", FAULT), asked("C3.1", FAULT))
    new = report(asked("C1.1", PASS), asked("C3.1", FAULT))
    assert told(new, old)[:2] == [
        "✓ gone: C1.1 first things, broken (now pass)",
        "✗ first fault now, there before behind another: C3.1 first things, broken",
    ]


def test_what_cannot_be_told_any_more_is_not_called_gone() -> None:
    new, old = report(asked("C3.1", CANNOT_TELL)), report(asked("C3.1", FAULT))
    assert compare(new, old).leaf_gone is None
    assert told(new, old)[0] == "? not shown to be gone: C3.1 first things, broken (now cannot tell)"


def test_a_fault_that_another_one_explains_now_is_not_gone() -> None:
    new = report(asked("C3.1", NOTE, outcome="broken"), asked("C5.1", FAULT))
    old = report(asked("C3.1", FAULT), asked("C5.1", PASS))
    assert told(new, old)[:2] == [
        "✗ still there: C3.1 first things, broken",
        "✗ new fault: C5.1 first things, broken",
    ]


def test_another_outcome_of_the_same_question() -> None:
    new, old = report(asked("C3.1", FAULT, outcome="low")), report(asked("C3.1", FAULT, outcome="high"))
    comparison = compare(new, old)
    assert comparison.leaf_gone is old.leaf
    assert comparison.leaf_came is new.leaf


def test_a_question_only_one_walk_asked() -> None:
    new, old = report(asked("C1.1", PASS)), report(asked("C9.1", PASS))
    assert told(new, old) == [
        "· C1.1 first things: not asked before, pass now",
        "· C9.1 first things: pass before, not asked now",
    ]


def test_nothing_changed() -> None:
    assert told(healthy_report(), healthy_report()) == ["✓ no answer changed"]


def test_a_fault_behind_an_edge_is_gone_where_the_way_to_it_passes() -> None:
    def walked(first: Answer, second: Answer) -> Report:
        return report(Asked(QUESTIONS["D1.1"], first, {}), Asked(QUESTIONS["D1.3"], second, {}))

    silent = Answer(NOT_APPLICABLE, "not-applicable", "nothing is non-finite")
    old = walked(Answer(NOTE, "non-finite", "step 3"), Answer(FAULT, "loss-first", "step 3", fix="Look."))
    repaired = walked(Answer(PASS, "pass", "all finite"), silent)
    blind = walked(Answer(CANNOT_TELL, "missing", "no loss"), silent)
    assert compare(repaired, old).leaf_gone is old.leaf
    assert compare(blind, old).leaf_gone is None
