"""Every form survives any strings and numbers that a report may hold."""

import json
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from steadyrun.questions.form import (
    CANNOT_TELL,
    FAULT,
    NOT_APPLICABLE,
    NOTE,
    PASS,
    Answer,
    Finding,
    Outcome,
    Question,
    Threshold,
)
from steadyrun.report import Report
from steadyrun.report.comparison import compare
from steadyrun.report.file_formats import document, dumps, html, junit, markdown
from steadyrun.report.terminal import plain
from steadyrun.trees.walker import Asked, Walk

anything = st.text(st.characters(exclude_categories=()), max_size=20)
numbers = st.floats()
steps = st.none() | st.integers(-1, 2**53)
names = st.tuples(anything, anything)


THRESHOLD = ("name", "unit", "meaning", "seed", "decision")


@st.composite
def walked(draw: st.DrawFn) -> Asked:
    limits = draw(st.lists(st.builds(Threshold, **dict.fromkeys(THRESHOLD, anything) | {"value": numbers}), max_size=2))
    outcome = draw(st.builds(Outcome, name=anything, answer=st.just(FAULT), meaning=anything, fix=anything))
    question = Question(
        *draw(st.tuples(anything, anything, anything, anything)),
        needs=(),
        panel=draw(st.none() | st.integers()),
        thresholds=tuple(limits),
        outcomes=(outcome,),
        find=lambda run, limit: Finding("pass", ""),
    )
    kind = draw(st.sampled_from([PASS, FAULT, NOTE, CANNOT_TELL, NOT_APPLICABLE]))
    measured = draw(st.dictionaries(anything, numbers, max_size=2))
    texts = draw(st.tuples(anything, anything))
    answer = Answer(kind, outcome.name, texts[0], measured, draw(steps), texts[1], (), (texts[0],), texts[1])
    return Asked(question, answer, {limit.name: draw(numbers) for limit in limits[:1]})


@st.composite
def reports(draw: st.DrawFn) -> Report:
    path = draw(st.lists(walked(), max_size=4))
    left = draw(st.lists(walked(), max_size=1))
    walk = Walk(tuple(path), tuple(asked.question for asked in left))
    return Report(draw(anything), walk, draw(anything), draw(steps), tuple(draw(st.lists(anything, max_size=2))))


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


@settings(max_examples=150)
@given(reports(), reports())
def test_every_form_survives(new: Report, old: Report) -> None:
    comparison = compare(new, old)
    for text in (plain(new, comparison), markdown(new, comparison), html(new)):
        assert text.encode()
        assert all(char.isprintable() or char == "\n" for char in text)
    ElementTree.fromstring(junit(new, comparison).encode())
    json.loads(dumps(document(new, comparison)), parse_constant=no_constant)
