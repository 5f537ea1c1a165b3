"""What the document says of a run with a trial: made-up trials, damaged ones, any JSON, and a real one."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from kept_trials import MESSAGE, ODD_TRIALS, keep, kept, row, tried_run
from postmortem_cases import case_of, examined, experiments, incident, replayed, spiky
from samples import HOSTILE
from synthetic import Synthetic
from test_postmortem_document import sections, standing, whole

from steadyrun.errors import UsageError
from steadyrun.postmortem.case import Case, choose
from steadyrun.postmortem.document import Document, compose, to_dict, write
from steadyrun.postmortem.document_markdown import markdown
from steadyrun.questions.form import SUSPECT, Answer
from steadyrun.report.file_formats import dumps
from steadyrun.store.trial_record import parsed
from steadyrun.trees import QUESTIONS
from steadyrun.trees.walker import Asked


def with_trial(run: Path, content: dict[str, Any], source: Synthetic | None = None) -> Document:
    """The document of a run with a spike and a trial."""
    document = compose(replace(case_of(source or spiky(), run, 200), trial=parsed(content)))
    whole(document)
    return document


def calm(steps: int = 300) -> Synthetic:
    """A run without an incident, a spike or a fault."""
    noise = np.random.default_rng(0).normal(0, 0.02, steps)
    return Synthetic(config={"lr_max": 3e-4}, loss=1.0 + 2.0 * np.exp(-np.arange(steps) / 60) + noise)


def test_a_fault_of_a_trial_is_the_root_cause(tmp_path: Path) -> None:
    document = with_trial(tmp_path, kept())
    assert (document.root.known, document.root.by, document.root.cause) == (True, "trial", "trial-fault")
    assert document.root.sentence.startswith("The learning rate is too high")
    assert document.root.sentence.endswith(f"{MESSAGE[:-1]}.")
    assert document.hypotheses[0].title.startswith("C7.2: ")
    assert document.remedies[0].change == "lr: a tenth"
    assert document.lesson.startswith("The learning rate divided by 10")
    assert standing(document, "learning-rate") == "supported"


def test_its_table_is_in_section_3(tmp_path: Path) -> None:
    document = with_trial(tmp_path, kept())
    section = sections(markdown(document, "step.json", None))["Discriminating evidence"]
    assert "- **Trial**: The trial found a fault. The learning rate divided by 10" in section
    assert "→ proves H1" in section
    rows = [line for line in section.splitlines() if line.startswith("|")]
    assert rows[0] == "| change | loss | better by | 95% interval | seeds | note |"
    assert rows[2] == "| nothing changed | 2 |  |  | 2 |  |"
    assert rows[3] == "| the learning rate divided by 10 | 1 | 52% | 47% to 58% | 2 |  |"
    assert rows[-1] == "| the learning rate times 10 |  |  |  | 2 | given up at step 25: far behind |"
    form = json.loads(dumps(to_dict(document)))
    assert form["trial"]["code"] == "C7.2"
    assert len(form["trial"]["rows"]) == 5
    assert "curves" not in form["trial"]


def test_a_long_table_ends(tmp_path: Path) -> None:
    rows = [row(f"change {place}", f"change {place}", place / 40) for place in range(30)]
    text = markdown(with_trial(tmp_path, kept(rows=rows)), "step.json", None)
    assert text.count("| change ") == 13  # with the heads of the columns
    assert "And 18 more changes with smaller effects." in text


def test_what_a_replay_proved_of_the_incident_comes_first(tmp_path: Path) -> None:
    incident(tmp_path, 200, replay=replayed(), experiments=experiments("data"))
    document = with_trial(tmp_path, kept())
    assert (document.root.by, document.root.cause) == ("experiments", "unusual-batch")
    assert standing(document, "trial-fault") == "proved"


def test_a_trial_decides_what_experiments_leave_open(tmp_path: Path) -> None:
    incident(tmp_path, 200, replay=replayed(), experiments=experiments("undecided"))
    assert with_trial(tmp_path, kept()).root.by == "trial"


@pytest.mark.parametrize("verdict", ["clear", "improvement", "undecided", "other"])
def test_a_trial_without_a_fault_proves_nothing(tmp_path: Path, verdict: str) -> None:
    document = with_trial(tmp_path, kept(verdict=verdict, would_decide="8 seeds would show it"))
    assert not document.root.known
    assert "trial-fault" not in {hypothesis.cause.key for hypothesis in document.hypotheses}
    assert document.root.would_decide[0] == "the trial is undecided: 8 seeds would show it"
    assert "does not point to a cause" in markdown(document, "step.json", None)


def suspecting(run: Path, code: str, outcome: str, content: dict[str, Any]) -> Document:
    """The document of a run with a suspect and a trial."""
    case = case_of(spiky(), run, 200)
    suspect = Asked(QUESTIONS[code], Answer(SUSPECT, outcome, "it looks so."), {})
    walked = replace(case.report.walk, path=(*case.report.walk.path, suspect))
    return compose(replace(case, report=replace(case.report, walk=walked), trial=parsed(content)))


def test_a_suspect_that_a_trial_confirms_is_the_cause(tmp_path: Path) -> None:
    document = suspecting(tmp_path, "C7.2", "rate-too-high", kept())
    assert (document.root.by, document.root.cause) == ("trial", "walk-fault")
    assert f"By trial: {MESSAGE}".lower() in document.root.sentence.lower()
    assert "trial-fault" not in {hypothesis.cause.key for hypothesis in document.hypotheses}


def test_a_suspect_that_a_trial_clears_is_ruled_out(tmp_path: Path) -> None:
    cleared = suspecting(tmp_path, "C7.3", "too-strong", kept(verdict="clear"))
    assert standing(cleared, "walk-fault") == "ruled out"
    untested = suspecting(tmp_path, "C7.3", "too-strong", kept(verdict="clear", tested=["C7.1"]))
    assert standing(untested, "walk-fault") != "ruled out"
    undecided = suspecting(tmp_path, "C7.3", "too-strong", kept(verdict="undecided"))
    assert standing(undecided, "walk-fault") != "ruled out"


def test_a_run_without_an_incident_has_a_post_mortem_if_a_trial_found_a_fault(tmp_path: Path) -> None:
    signals, report = examined(calm(), str(tmp_path))
    with pytest.raises(UsageError, match="nothing to write"):
        choose(tmp_path, signals, report, None, parsed(kept(verdict="clear")))
    trial = parsed(kept())
    moment, proofs = choose(tmp_path, signals, report, None, trial)
    assert (moment.step, moment.kind, moment.code, moment.why) == (0, "fault", "C7.2", MESSAGE)
    document = compose(Case(tmp_path, signals, report, moment, proofs, None, trial))
    whole(document)
    assert document.root.by == "trial"


@pytest.mark.parametrize(
    ("code", "outcome"), [("", ""), ("X9.9", "nothing"), ("C7.2", "unheard-of"), ("<b>", "{lr}"), ("c7.2", HOSTILE)]
)
def test_a_verdict_with_a_code_that_is_not_known(tmp_path: Path, code: str, outcome: str) -> None:
    document = with_trial(tmp_path, kept(code=code, outcome=outcome))
    assert document.root.by == "trial"
    assert document.root.sentence.endswith(MESSAGE[1:])
    assert document.remedies[0].change == "the learning rate divided by 10"


def test_every_cause_of_a_trial_has_its_entry() -> None:
    from steadyrun.postmortem.causes.in_trial import _known
    from steadyrun.postmortem.causes.in_walk import _CHANGES
    from steadyrun.trial.verdict import CAUSES

    asked = [cause for cause in CAUSES.values() if not cause[0].startswith("T")]  # no question asks about the others
    for code, outcome in asked:
        question, known = _known(parsed(kept(code=code, outcome=outcome)))
        assert question is not None, code
        assert known is not None, (code, outcome)
        assert f"{code} {outcome}" in _CHANGES


def test_hostile_strings_are_only_shown(tmp_path: Path) -> None:
    rows = [row(HOSTILE, HOSTILE, 0.5, note=HOSTILE)]
    document = with_trial(tmp_path, kept(rows=rows, message=HOSTILE, fix=HOSTILE, factor=HOSTILE, code=HOSTILE))
    text = markdown(document, "step.json", None)
    text.encode()
    outside_code = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", text)
    assert "<script>" not in outside_code
    assert "@all" not in outside_code
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e\u2066]", text)
    (line,) = [line for line in text.splitlines() if line.startswith("| \\[red")]
    assert len(re.findall(r"(?<!\\)\|", line)) == 7


@settings(max_examples=40, deadline=None)
@given(content=ODD_TRIALS)
def test_any_content_makes_a_whole_document(tmp_path_factory: pytest.TempPathFactory, content: dict[str, Any]) -> None:
    with_trial(tmp_path_factory.getbasetemp() / "none", json.loads(json.dumps(content)))


def test_a_real_trial(tmp_path: Path) -> None:
    run = tmp_path / "run"
    tried = tried_run(run)
    document = write(run, 2)
    assert document.case.trial is not None
    assert document.case.trial.message == tried.verdict.message
    assert len(document.case.trial.rows) == len(tried.rows) - 1
    whole(document)
    keep(run, "{")
    assert write(run, 2).case.trial is None
