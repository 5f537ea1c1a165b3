"""One code per cause: every former code still works, and leads to the one page of its cause."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from steadyrun.agents.run_tools import explain
from steadyrun.cli import app
from steadyrun.errors import UsageError
from steadyrun.preflight import _MODULES, _ON_RANKS, ON_RANKS, PROBES
from steadyrun.questions.aliases import ALIASES, OUTCOMES, OWN, aliases_of, code_of, codes_of, outcome_of
from steadyrun.questions.form import FAULT, SUSPECT
from steadyrun.report.limits import changes, everything, limit_names, probe_for, question_named, threshold_named
from steadyrun.report.preflight import known_probes
from steadyrun.report.question_page import section_named
from steadyrun.trees import QUESTIONS

PAGES = Path(__file__).parents[2] / "docs" / "questions"
JOINED = sorted(set(PROBES) & set(QUESTIONS))
JOINED_ON_RANKS = sorted((set(ON_RANKS) - set(PROBES)) & set(QUESTIONS))


def test_a_code_is_not_an_alias_and_an_alias_resolves_at_once() -> None:
    assert not set(ALIASES) & set(everything())
    assert set(ALIASES.values()) <= set(PROBES) & set(QUESTIONS)
    assert all(code_of(code) == code for code in everything())
    assert len(set(ALIASES.values())) == len(ALIASES)


def test_every_joined_cause_is_tried_and_seen() -> None:
    for code in JOINED:
        assert PROBES[code].tried
        assert not QUESTIONS[code].tried
        assert PROBES[code].name == QUESTIONS[code].name
        assert probe_for(QUESTIONS[code]) is PROBES[code]
    former = {new for old in (*ALIASES, "P1.2") for new in codes_of(old)} - {"P1.2"}
    assert set(JOINED) == former | {"C7.1", "C7.4"}  # these two had no code of preflight before


@pytest.mark.parametrize("old", OUTCOMES)
def test_a_former_answer_is_one_of_today(old: str) -> None:
    code, _, outcome = old.partition(":")
    new_code, new_outcome = outcome_of(code, outcome)
    assert PROBES[new_code].outcome(new_outcome)
    assert QUESTIONS[new_code].outcome(new_outcome)
    assert outcome not in {known.name for known in PROBES[code_of(code)].outcomes} or new_code != code_of(code)


@pytest.mark.parametrize("code", JOINED_ON_RANKS)
def test_what_several_ranks_try_has_the_name_of_the_question(code: str) -> None:
    assert ON_RANKS[code].tried
    assert ON_RANKS[code].name == QUESTIONS[code].name
    assert probe_for(QUESTIONS[code]) is ON_RANKS[code]


@pytest.mark.parametrize("code", [*JOINED, *JOINED_ON_RANKS])
def test_both_sources_mean_the_same_by_a_name(code: str) -> None:
    recorded, probe = QUESTIONS[code], (PROBES | ON_RANKS)[code]
    grades = {outcome.name: outcome.answer for outcome in recorded.outcomes}
    for outcome in probe.outcomes:  # what the record only suspects, an experiment may prove
        known = grades.get(outcome.name, outcome.answer)
        assert known == outcome.answer or (known, outcome.answer) == (SUSPECT, FAULT)
    limits = {threshold.name: threshold for threshold in recorded.thresholds}
    for threshold in probe.thresholds:
        assert limits.get(threshold.name, threshold) == threshold
        assert not threshold.name.startswith(OWN) or threshold.name.removeprefix(OWN) in limits


@pytest.mark.parametrize("module", [*_MODULES, *_ON_RANKS], ids=lambda module: module.QUESTION.code)
def test_a_file_is_named_after_its_code(module: Any) -> None:
    assert Path(module.__file__).name.startswith(module.QUESTION.code.lower().replace(".", "_") + "_")


@pytest.mark.parametrize("old", ALIASES)
def test_a_former_code_works_wherever_a_code_does(old: str) -> None:
    new = code_of(old)
    assert question_named(old.lower()) is QUESTIONS[new]
    assert QUESTIONS[new] in section_named(old.partition(".")[0])
    assert new in known_probes([old])
    assert set(codes_of(old)) <= known_probes([old.partition(".")[0]])
    shown = CliRunner().invoke(app, ["explain", old, "--json"])
    page = json.loads(shown.stdout)
    assert (shown.exit_code, page["code"]) == (0, new)
    assert old in page["aliases"]
    assert page["preflight"]["asks"] == PROBES[new].asks
    assert explain(old)["code"] == new
    for threshold in PROBES[new].thresholds:
        name = threshold.name.removeprefix(OWN)
        assert threshold_named(f"{old}.{name}") == (new, threshold.name)
        assert threshold_named(f"{new}.{threshold.name}") == (new, threshold.name)


@pytest.mark.parametrize("old", ALIASES)
def test_a_former_code_has_a_page_that_leads_on(old: str) -> None:
    assert all(f"]({new}.md)" in (PAGES / f"{old}.md").read_text() for new in codes_of(old))
    for new in codes_of(old):
        assert old in aliases_of(new)
        page = (PAGES / f"{new}.md").read_text()
        assert "## Before training" in page
        assert "## From the record" in page
        assert old in page


def test_limits_of_one_source_leave_the_other_alone(tmp_path: Path) -> None:
    given = {"P1.3.share": 0.95, "A3.3.share": 0.8, "P4.6.far": 0.7, "P3.3.band": 0.4}
    assert changes(given, tmp_path) == {"A3.3": {"share": 0.8}, "C1.1": {"band": 0.4}}
    tried = {"A3.3": {"before_share": 0.95}, "A4.5": {"far": 0.7}, "C1.1": {"band": 0.4}}
    assert changes(given, tmp_path, tried=True) == tried


def test_an_unknown_limit_of_a_former_code_gets_a_hint() -> None:
    with pytest.raises(UsageError, match=r"did you mean A3\.3\.before_share"):
        threshold_named("P1.3.before_shore")
    assert "before_share" in limit_names(QUESTIONS["A3.3"])
