"""Markdown, JUnit XML, HTML and JSON."""

import json
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

from samples import HOSTILE, asked, fault_report, healthy_report, question, report

from steadyrun.questions.form import FAULT, NOTE, PASS
from steadyrun.report.comparison import compare
from steadyrun.report.file_formats import code, document, dumps, html, junit, markdown
from steadyrun.report.report import Report
from steadyrun.trees.walker import Asked


def hostile_report() -> Report:
    answers = [asked("C1.1", kind, message=HOSTILE, fix=HOSTILE) for kind in (PASS, NOTE, FAULT)]
    path = [Asked(question(name=HOSTILE), answer.answer, {}) for answer in answers]
    return report(*path, run=HOSTILE, state=HOSTILE, damage=(HOSTILE,))


def test_markdown_leads_with_the_fault_and_its_fix() -> None:
    made = markdown(fault_report())
    assert made.startswith("### ✗ fault: `runs/a`\n\nfinished, last step 99\n\n**✗ it is broken (C3.1, step 12)**\n")
    assert "- **fix:** Mend it." in made
    assert "| C1.1 | first things | ✓ pass | message of C1.1 |" in made
    assert "\n\n<details><summary>The walk</summary>\n\n|" in made


def test_markdown_of_hostile_names() -> None:
    made = markdown(hostile_report(), compare(hostile_report(), healthy_report(run=HOSTILE)))
    assert all(char.isprintable() or char == "\n" for char in made)
    rows = [line for line in made.splitlines() if line.startswith("| C1.1")]
    assert len(rows) == 3
    for row in rows:
        assert row.replace("\\|", "").count("|") == 5
        assert "\\<script\\>" in row
        assert "@all" not in row


def test_code_spans_hold_backticks() -> None:
    assert code("a`b``c") == "``` a`b``c ```"
    assert code("plain") == "`plain`"
    assert code("") == "`  `"


def test_junit_has_a_case_per_question() -> None:
    suites = ElementTree.fromstring(junit(fault_report(), compare(fault_report(), healthy_report(run="runs/old"))))
    (suite,) = suites
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "6", "failures": "1", "errors": "0", "skipped": "3"}
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    failure = cases["C3.1 first things"].find("failure")
    assert failure is not None
    assert failure.get("type") == "broken"
    assert failure.get("message") == "level 9 above 8. (limit high changed from 5 to 8)"
    assert failure.text is not None
    assert failure.text.startswith("fix: Mend it.\n")
    reasons = {name: case.find("skipped") for name, case in cases.items()}
    assert {name: reason.get("message") for name, reason in reasons.items() if reason is not None} == {
        "C2.1 first things": "cannot tell: message of C2.1; to tell: call run.watch(model, optimizer)",
        "C2.2 first things": "not applicable: message of C2.2",
        "D1.1 first things": "not asked: the walk ends at the first fault (--all goes on)",
    }
    assert cases["C1.2 first things"].findtext("system-out") == "note: message of C1.2"
    assert "compared with runs/old" in (suite.findtext("system-out") or "")


def test_junit_of_hostile_names() -> None:
    suites = ElementTree.fromstring(junit(hostile_report()).encode())
    failure = suites.find(".//failure")
    assert failure is not None
    assert (failure.get("message") or "").startswith("[red]x[/red] </td><script>alert(1)</script> & |")


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_html_is_well_formed_self_contained_and_escaped() -> None:
    made = html(hostile_report())
    reader = _Reader()
    reader.feed(made)
    assert reader.open == []
    assert "script" not in reader.seen
    assert "&lt;script&gt;" in made
    assert "http" not in made
    assert "background" not in made  # the page's own, light or dark
    assert "\x1b" not in made


def test_a_notebook_shows_verdict_fix_and_walk() -> None:
    made = fault_report()._repr_html_()
    for part in ("✗ fault", "✗ it is broken (C3.1, step 12)", "Mend it.", "limit high changed from 5 to 8", "✓ pass"):
        assert part in made


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def test_json_is_valid_everywhere() -> None:
    text = dumps(document(fault_report(run=HOSTILE)))
    parsed = json.loads(text, parse_constant=no_constant)
    assert parsed["leaf"]["evidence"]["measured"] == {"level": 9.0, "bad": "nan"}
    assert parsed["run"] == HOSTILE
    assert text.isascii()
    assert "after" not in parsed


def test_json_has_the_documented_keys() -> None:
    content = document(fault_report(), compare(fault_report(), healthy_report()))
    assert list(content) == [
        *("schema", "run", "state", "last_step", "verdict", "leaf", "headline", "vital_signs", "consequences", "walk"),
        *("suspects", "notes", "not_asked", "damage", "announced", "incidents", "trial", "after"),
    ]
    assert set(content["leaf"]) == {"code", "aliases", "outcome", "step", "message", "fix", "evidence"}
    more = {"grade": "fault", "likely": "", "experiment": "", "proof": "tree", "source": "record", "also": None}
    assert content["headline"] == content["leaf"] | more
    assert content["walk"][4]["thresholds"]["high"] == {
        "value": 8.0,
        "unit": "nats",
        "source": "changed by the user",
        "changed": True,
        "default": 5.0,
    }
