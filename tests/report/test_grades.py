"""What a suspect and a vital sign are, in the verdict and in every form of a report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from samples import asked, report
from typer.testing import CliRunner

import steadyrun
from steadyrun.cli import app
from steadyrun.live.prometheus import exposition
from steadyrun.live.run_row import RunRow
from steadyrun.questions.form import CANNOT_TELL, FAULT, NOT_APPLICABLE, NOTE, PASS, SUSPECT
from steadyrun.report import Report
from steadyrun.report.comparison import compare, sentences
from steadyrun.report.file_formats import html, junit, markdown
from steadyrun.report.question_page import upper_bound
from steadyrun.report.report import NEEDED_FOR_HEALTHY
from steadyrun.report.terminal import plain
from steadyrun.trees import QUESTIONS
from steadyrun.trees.walker import Asked

ANSWERED = tuple(asked(code, PASS) for code in NEEDED_FOR_HEALTHY)
LIKELY = asked("C6.2", SUSPECT, message="level 7 of 5.", fix="Mend it.", experiment="Try it alone.", step=40)


def sign(kind: str, code: str = "V1.1") -> Asked:
    return asked(code, kind, message="loss 2 at the start, 1 at the end.")


def suspect_report() -> Report:
    return report(*ANSWERED, LIKELY, sign(SUSPECT), sign(NOT_APPLICABLE, "V1.2"))


@pytest.mark.parametrize(
    ("path", "verdict", "code"),
    [
        ((*ANSWERED, sign(PASS)), "healthy", 0),
        ((*ANSWERED, sign(NOT_APPLICABLE), sign(PASS, "V1.8")), "healthy", 0),
        ((*ANSWERED, sign(CANNOT_TELL, "V1.2"), sign(PASS)), "healthy", 0),
        ((*ANSWERED, sign(NOT_APPLICABLE), sign(PASS, "V1.4")), "cannot-tell", 3),
        ((*ANSWERED, sign(NOTE)), "cannot-tell", 3),
        ((*ANSWERED, asked("C1.1", NOTE), sign(PASS)), "healthy", 0),
        (ANSWERED[:2], "cannot-tell", 3),
        ((*ANSWERED, asked("C2.1", CANNOT_TELL, outcome="failed"), sign(PASS)), "cannot-tell", 3),
        ((*ANSWERED, sign(SUSPECT)), "suspect", 4),
        ((*ANSWERED, LIKELY, sign(NOTE)), "suspect", 4),
        ((LIKELY,), "suspect", 4),
        ((*ANSWERED, LIKELY, asked("D1.3", FAULT), sign(SUSPECT)), "fault", 1),
    ],
)
def test_the_verdict(path: tuple[Asked, ...], verdict: str, code: int) -> None:
    assert report(*path).verdict == verdict
    assert report(*path).exit_code == code


def test_the_headline_is_the_first_fault_or_else_the_first_suspect() -> None:
    fault = asked("D1.3", FAULT)
    assert report(LIKELY, fault).headline is fault
    assert report(*ANSWERED, LIKELY).headline is LIKELY
    assert report(*ANSWERED, LIKELY).leaf is None
    assert suspect_report().to_dict()["headline"]["grade"] == "suspect"
    assert suspect_report().to_dict()["headline"]["experiment"] == "Try it alone."


def test_the_signs_come_first_and_the_experiment_with_the_suspect() -> None:
    lines = plain(suspect_report()).splitlines()
    assert lines[:2] == ["▲ suspect  runs/a  finished, last step 99", "▲ it looks broken (C6.2, step 40)"]
    signs = lines.index("vital signs")
    assert lines[signs + 1] == "  ✗ first things: loss 2 at the start, 1 at the end."
    whole = plain(replace(suspect_report(), verbose=True))
    assert "  ✗ V1.1 first things: loss 2 at the start, 1 at the end.\n  ○ not known: V1.2 first things\n" in whole
    text = "\n".join(lines)
    assert "to decide: Try it alone." in text
    assert text.count("loss 2 at the start") == 1, "a sign is shown once"


def test_an_amber_sign_says_why_healthy_is_withheld() -> None:
    text = plain(report(*ANSWERED, sign(NOTE)))
    assert "No fault found, but a little off (V1.1).\n" in text


def test_a_suspect_is_a_failure_of_its_own_type() -> None:
    suite = ElementTree.fromstring(junit(suspect_report())).find("testsuite")
    assert suite is not None
    failures = [failure for case in suite for failure in case.iter("failure")]
    assert {failure.get("type") for failure in failures} == {"suspect"}
    assert "to decide: Try it alone." in (failures[0].text or "")


@pytest.mark.parametrize("form", [markdown, html])
def test_markdown_and_notebooks_show_signs_and_experiment(form: object) -> None:
    text = form(suspect_report())  # type: ignore[operator]
    assert "🔴" in text
    assert "Try it alone" in text


def test_json_lists_suspects_and_signs() -> None:
    content = suspect_report().to_dict()
    assert content["schema"] == 2
    assert [suspect["code"] for suspect in content["suspects"]] == ["C6.2", "V1.1"]
    assert [(sign["code"], sign["sign"]) for sign in content["vital_signs"]] == [("V1.1", "red"), ("V1.2", "unknown")]


def test_a_comparison_says_that_a_suspect_is_gone_or_new() -> None:
    old, new = suspect_report(), report(*ANSWERED, asked("C6.2", PASS), sign(PASS))
    assert sentences(compare(new, old))[0] == ("✓", "gone: C6.2 first things, likely (now pass)")
    assert ("▲", "new suspect: C6.2 first things, likely") in sentences(compare(old, new))


def test_every_suspect_of_every_question_has_an_experiment() -> None:
    for question in QUESTIONS.values():
        for outcome in question.outcomes:
            assert bool(outcome.experiment) == (outcome.answer == SUSPECT), f"{question.code} {outcome.name}"


def test_metrics_count_suspects() -> None:
    row = RunRow("k", "mine", "finished", verdict="suspect", leaf="V1.1")
    text = exposition([row], 0, 0.0)
    assert 'steadyrun_run_verdict{run="mine",verdict="suspect"} 1.0' in text
    assert 'steadyrun_run_suspect{run="mine",leaf="V1.1"} 1.0' in text
    assert 'steadyrun_run_fault{run="mine",leaf=""} 0.0' in text


def climbs_back(folder: Path) -> Path:
    noise = np.random.default_rng(1).normal(0, 0.02, 600)
    with steadyrun.record(folder, config={"init": "random"}) as run:
        for step in range(600):
            run.log(loss=(1 + 3 * np.exp(-step / 60) if step < 400 else 3.0) + noise[step])
    return folder


def test_the_exit_code_of_a_suspect_and_fail_on(tmp_path: Path) -> None:
    folder = climbs_back(tmp_path / "run")
    checked = CliRunner().invoke(app, ["check", str(folder), "--json"])
    assert checked.exit_code == 4
    content = json.loads(checked.stdout)
    assert content["verdict"] == "suspect"
    assert content["headline"]["code"] == "V1.1"
    assert CliRunner().invoke(app, ["check", str(folder), "--fail-on", "fault"]).exit_code == 0
    assert CliRunner().invoke(app, ["check", str(folder), "--fail-on", "suspect"]).exit_code == 4


@pytest.mark.parametrize(("count", "runs", "bound"), [(0, 81, 0.0363), (0, 104, 0.0284), (2, 104, 0.0593), (5, 5, 1.0)])
def test_the_bound_is_that_of_the_binomial_distribution(count: int, runs: int, bound: float) -> None:
    assert upper_bound(count, runs) == pytest.approx(bound, abs=2e-4)
