"""The page of a question, and the measured numbers on it."""

import math

import pytest
from samples import question

from steadyrun.report import question_page as pages
from steadyrun.report.limits import everything
from steadyrun.report.question_page import SECTIONS, how_to_record, page_as_dict, question_page, section_of

NUMBERS = {
    "C1.1": {
        "level": {
            "healthy": {"runs": 30, "median": 1.5, "p99": 3, "worst": "inf", "worst_run": "tutor-7"},
            "faults": {"bad-init": 67.1, "mask": "nan"},
        }
    }
}


@pytest.fixture
def _numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_all", lambda: NUMBERS)


@pytest.mark.usefixtures("_numbers")
def test_limits_come_with_what_was_measured() -> None:
    limits = {part.heading: part for part in question_page(question())}["Limits"]
    assert limits.items[0].term == "high = 5 nats"
    assert limits.items[0].details == (
        "rule of thumb: 5 at most",
        "decision: as specified",
        "healthy runs: median 1.5, 99th percentile 3, worst inf (tutor-7), 30 runs",
        "faulty runs: bad-init 67.1, mask nan",
    )


def test_what_was_not_measured_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_all", dict)
    limits = {part.heading: part for part in question_page(question())}["Limits"]
    assert limits.items[0].details[-1] == "not measured yet"


@pytest.mark.usefixtures("_numbers")
def test_the_page_for_programs() -> None:
    numbers = page_as_dict(question())["thresholds"][0]["measured"]
    assert numbers.healthy.runs == 30
    assert math.isnan(numbers.faults["mask"])


def test_numbers_of_faults_alone() -> None:
    assert pages.parse({"faults": {"x": 1}}) == pages.Measured(None, {"x": 1.0})


def test_how_needs_are_recorded() -> None:
    assert how_to_record("loss") == "call run.step(loss) once per optimizer step"
    assert "vocab_size" in how_to_record("vocab_size or num_classes")
    assert how_to_record("unheard_of") == ""


def test_every_section_has_a_title() -> None:
    assert {section_of(known) for known in everything().values()} <= set(SECTIONS)
