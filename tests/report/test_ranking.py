"""One headline over its consequences, and answers that are kept with a run."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import steadyrun
from steadyrun.questions.aliases import code_of
from steadyrun.questions.form import FAULT, NOT_APPLICABLE, NOTE, PASS, SUSPECT, Answer, Finding, Outcome, Question
from steadyrun.report.kept_answers import as_data, preflighted, replayed
from steadyrun.report.limits import everything
from steadyrun.report.ranking import SAME, proof, ranked
from steadyrun.report.report import Report
from steadyrun.report.two_sources import joined
from steadyrun.store.jsonio import jsonable
from steadyrun.trees import QUESTIONS
from steadyrun.trees.walker import Asked, Walk, walk


def never_asked(_run: Any, _limit: Any) -> Any:
    raise AssertionError


def asked(
    code: str,
    kind: str = FAULT,
    explains: tuple[str, ...] = (),
    *,
    outcome: str = "bad",
    proved: bool = False,
    tried: bool = False,
) -> Asked:
    bad = Outcome(
        name=outcome, answer=kind, meaning=f"{code} means this", fix="Do that.", explains=explains, proved=proved
    )
    words = (code, f"about {code}", "Is it?", "Because.")
    question = Question(*words, ("loss",), None, (), (bad,), never_asked, tried=tried or code[0] == "P")
    return Asked(question, Answer(kind, outcome, f"{code} found 7", fix=bad.fix), {})


def codes(answers: Any) -> list[str]:
    return [answer.question.code for answer in answers]


def test_no_fault_has_no_headline() -> None:
    assert ranked([asked("C1.1", PASS), asked("C2.1", NOTE)]).headline is None


def test_the_walk_decides_where_nothing_explains_anything() -> None:
    ranking = ranked([asked("C2.1"), asked("C4.1")])
    assert ranking.headline is not None
    assert ranking.headline.question.code == "C2.1"
    assert codes(ranking.beside) == ["C4.1"]


def test_a_proof_comes_before_the_symptoms_it_causes() -> None:
    ranking = ranked([asked("C4.1"), asked("D2.1", NOTE), asked("S7.1", NOTE), asked("A1.1", explains=("C4", "D2.1"))])
    assert ranking.headline is not None
    assert ranking.headline.question.code == "A1.1"
    assert codes(ranking.consequences) == ["C4.1", "D2.1"]
    assert not ranking.beside


def test_a_suspect_that_follows_is_shown_once() -> None:
    text = str(Report("run", Walk((asked("R4.1", FAULT), asked("A7.1", SUSPECT)), ()), "crashed", 9))
    assert text.count("(A7.1)") == 1
    assert "leads to: A7.1 means this" in text


def test_a_cause_that_is_itself_explained_is_no_headline() -> None:
    chain = [asked("C4.1"), asked("A4.3", explains=("C4",)), asked("A4.4", explains=("A4", "C"))]
    ranking = ranked(chain)
    assert ranking.headline is not None
    assert ranking.headline.question.code == "A4.4"
    assert codes(ranking.consequences) == ["C4.1", "A4.3"]


def test_what_was_tried_comes_before_what_was_seen() -> None:
    ranking = ranked([asked("A3.1", explains=("P3",)), asked("P3.4", explains=("A3",))])
    assert ranking.headline is not None
    assert ranking.headline.question.code == "P3.4"


def test_a_proved_answer_follows_from_nothing_but_its_name() -> None:
    leak = asked("C4.2", outcome="leak", proved=True)
    assert codes(ranked([leak, asked("A2.2", explains=("C4",))]).beside) == ["C4.2"]
    assert codes(ranked([leak, asked("A2.2", explains=("C4.2:leak",))]).consequences) == ["C4.2"]


def test_what_explains_each_other_still_has_one_headline() -> None:
    ranking = ranked([asked("A1.1", explains=("A2",)), asked("A2.1", explains=("A1",))])
    assert ranking.headline is not None


def test_every_explanation_names_something_there_is() -> None:
    from steadyrun.preflight import PROBES

    known = everything()
    names = set(known) | {code.partition(".")[0] for code in known} | {code[0] for code in known} | {"E"}
    for question in (*known.values(), *PROBES.values()):
        for outcome in question.outcomes:
            for target in outcome.explains:
                code, _, named = target.partition(":")
                assert code_of(code) in names, (question.code, target)
                assert not named or named in {known_outcome.name for known_outcome in known[code].outcomes}, (
                    question.code,
                    target,
                )
            assert not outcome.explains or outcome.answer in (FAULT, SUSPECT), question.code


def test_what_preflight_tried_and_the_run_shows_is_one_finding() -> None:
    seen = [asked("C4.2", outcome="leak", proved=True), asked("A3.1"), asked("A7.1")]
    before = [asked("A3.1", tried=True), asked("C4.2", outcome="leak", tried=True), asked("P1.1")]
    path = list(joined(seen, before))
    assert codes(path) == ["C4.2", "A3.1", "A7.1", "P1.1"]
    ranking = ranked(path)
    assert ranking.headline is not None
    assert (codes([ranking.headline]), proof(ranking.headline)) == (["C4.2"], "preflight")
    assert codes(ranking.beside) == ["A3.1", "A7.1", "P1.1"]
    assert codes(ranked(path[2:]).consequences) == ["A7.1"]
    known = set(QUESTIONS)
    assert all(set(others) <= known for others in SAME.values())


def test_the_graver_answer_stands_and_the_other_is_its_evidence() -> None:
    seen, tried = asked("A3.1"), asked("A3.1", tried=True)
    (both,) = joined([seen], [tried])
    assert both.question is seen.question
    assert both.answer.message == "A3.1 found 7 Preflight, before the run: A3.1 found 7"
    (only_tried,) = joined([asked("A3.1", PASS)], [tried])
    assert (only_tried.question.tried, only_tried.answer) == (True, tried.answer)
    (only_seen,) = joined([seen], [asked("A3.1", PASS, tried=True)])
    assert (only_seen.question.tried, only_seen.answer) == (False, seen.answer)
    assert proof(only_seen) == "audit"
    (neither,) = joined([asked("A3.1", PASS)], [asked("A3.1", NOT_APPLICABLE, tried=True)])
    assert (neither.question.tried, neither.answer.kind) == (False, PASS)
    (two_faults,) = joined([asked("C4.2", outcome="overfitting")], [asked("C4.2", outcome="leak", tried=True)])
    assert two_faults.answer.outcome == "leak"
    assert two_faults.answer.message.endswith("The record: C4.2 found 7")


def test_before_training_nothing_follows_from_training() -> None:
    rate = asked("P6.5", explains=("C1", "D", "P6.1"))
    first_loss = asked("C1.1", tried=True)
    assert codes(ranked([rate, first_loss]).beside) == ["C1.1"]
    assert codes(ranked([rate, asked("C1.1")]).consequences) == ["C1.1"]
    assert codes(ranked([asked("P1.1", explains=("P3.3",)), first_loss]).consequences) == ["C1.1"]


def test_both_sources_say_what_follows() -> None:
    (both,) = joined([asked("A1.1", explains=("D2",))], [asked("A1.1", explains=("P6",), tried=True)])
    assert codes(ranked([asked("D2.4"), asked("P6.1"), both]).consequences) == ["D2.4", "P6.1"]


def test_a_symptom_gives_way_to_whatever_else_is_found() -> None:
    weak = asked("P6.1")
    weak = replace(weak, question=replace(weak.question, outcomes=(replace(weak.question.outcomes[0], symptom=True),)))
    ranking = ranked([weak, asked("D3.2")])
    assert ranking.headline is not None
    assert ranking.headline.question.code == "D3.2"


def test_a_suspect_that_names_a_fault_leads_it_and_the_verdict_stays() -> None:
    cause = asked("G3.3", SUSPECT, ("C4.1:not-learning",))
    path = [asked("C4.1", outcome="not-learning"), cause, asked("G3.4", SUSPECT)]
    ranking = ranked(path)
    assert ranking.headline is cause
    assert codes(ranking.consequences) == ["C4.1"]
    report = Report("run", Walk(tuple(path), path[0]))
    assert report.verdict == FAULT
    assert "G3.3" in str(report)


def test_a_suspect_that_names_a_section_leads_no_fault() -> None:
    path = [asked("C4.1", outcome="not-learning"), asked("G3.3", SUSPECT, ("C4",))]
    assert ranked(path).headline is path[0]


def test_json_and_text_show_the_headline_and_what_follows() -> None:
    path = (asked("C4.1"), asked("A1.1", explains=("C4",)), asked("D4.1"))
    report = Report("run", Walk(path, ()), "finished", 9)
    content = report.to_dict()
    assert content["leaf"]["code"] == "C4.1"
    assert content["headline"]["code"] == "A1.1"
    assert content["headline"]["proof"] == "audit"
    assert [consequence["code"] for consequence in content["consequences"]] == ["C4.1"]
    text = str(report)
    assert text.index("(A1.1)") < text.index("leads to") < text.index("(D4.1)")
    assert "leads to" in report._repr_html_()


def test_answers_kept_with_a_run_come_back_as_they_were() -> None:
    first = asked("A3.1", explains=("C4",), tried=True)
    again = preflighted({"preflight": {"walk": [jsonable(as_data(first))]}})
    assert len(again) == 1
    assert again[0].answer == first.answer
    assert again[0].question.tried
    assert again[0].question.outcome("bad").explains == ("C4",)


def test_answers_kept_under_a_former_code_are_read_by_the_code_of_today() -> None:
    kept = [jsonable(as_data(asked("P4.8", outcome="two-tensors"))), jsonable(as_data(asked("P5.1", outcome="erased")))]
    again = preflighted({"preflight": {"walk": kept}})
    assert [(a.question.code, a.answer.outcome) for a in again] == [("A4.7", "untied"), ("A1.2", "erased")]
    assert all(a.question.outcome(a.answer.outcome).answer == FAULT for a in again)


JUNK = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=6), st.floats()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=12,
)


@settings(max_examples=100)
@given(JUNK, st.dictionaries(st.sampled_from(sorted(as_data(asked("P1.1")))), JUNK))
def test_whatever_is_kept_is_read_or_left_out(junk: Any, changed: dict[str, Any]) -> None:
    entry = {**as_data(asked("P1.1")), **changed}
    for kept in (junk, {"walk": junk}, {"walk": [junk, entry]}):
        for answer in preflighted({"preflight": kept}):
            assert str(Report("run", Walk((answer,), ())))


def test_a_replay_that_reproduced_the_moment_names_its_origin(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path / "run") as run:
        for step in range(30):
            run.step(3.0 - step / 30)
    folder = tmp_path / "run" / "incidents" / "step-0000007"
    folder.mkdir(parents=True)
    text = '{"proof": {"verdict": "bit-equal"}, "culprit": {"cause": "log-of-zero", "message": "log(0) in loss"}}'
    (folder / "replay.json").write_text(text)
    headline = steadyrun.check(tmp_path / "run").headline
    assert headline is not None
    assert (headline.question.code, headline.answer.outcome) == ("E1.1", "log-of-zero")
    for broken in (
        "",
        "[]",
        "nonsense",
        text.replace("bit-equal", "not-reproducible"),
        text.replace('"log-of-zero"', "3"),
    ):
        (folder / "replay.json").write_text(broken)
        assert replayed(tmp_path / "run") == []


def test_audits_are_asked_behind_a_fault_and_the_trees_are_not() -> None:
    def answers(code: str, *, always: bool = False) -> Question:
        plain_question = asked(code).question
        return replace(plain_question, always=always, find=lambda _run, _limit: Finding("bad", f"{code} found 7"))

    questions = {
        question.code: question for question in (answers("C1.1"), answers("C2.1"), answers("A1.1", always=True))
    }
    walked = walk(questions, None, {})
    assert codes(walked.path) == ["C1.1", "A1.1"]
    assert [question.code for question in walked.not_reached] == ["C2.1"]
    assert all(question.always for code, question in QUESTIONS.items() if code.startswith("A"))


def at(step: int | None, fault: Asked) -> Asked:
    return replace(fault, answer=replace(fault.answer, step=step))


def test_a_cause_explains_nothing_that_came_before_it() -> None:
    early, together, later, unknown = at(0, asked("C2.1")), at(71, asked("D1.3")), at(90, asked("C4.1")), asked("S7.1")
    ranking = ranked([early, together, later, unknown, at(71, asked("E1.1", explains=("C", "D", "S")))])
    assert ranking.headline is not None
    assert ranking.headline.question.code == "E1.1"
    assert codes(ranking.consequences) == ["D1.3", "C4.1", "S7.1"]
    assert codes(ranking.beside) == ["C2.1"]


def test_what_is_seen_in_the_first_steps_was_so_from_the_start() -> None:
    """Series are sampled: leftovers can be seen at step 1 first."""
    ranking = ranked([at(0, asked("C1.2")), at(1, asked("A1.1", explains=("C1",)))])
    assert codes(ranking.consequences) == ["C1.2"]
    ranking = ranked([at(0, asked("C1.2")), asked("P5.1", explains=("C1",))])
    assert codes(ranking.consequences) == ["C1.2"], "preflight came before the run"


def test_a_later_proof_does_not_take_the_headline_from_an_earlier_one() -> None:
    """Of two faults that name one another the earlier is the cause."""
    ranking = ranked([at(50, asked("A3.1", explains=("A5",))), at(0, asked("A5.1", explains=("A3",)))])
    assert ranking.headline is not None
    assert ranking.headline.question.code == "A5.1"
    assert codes(ranking.consequences) == ["A3.1"]


def test_a_replayed_nan_leaves_a_configuration_fault_beside_it(tmp_path: Path) -> None:
    """A real run: no warmup although one is declared, from step 0; a NaN comes at step 71."""
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    config = {"lr_max": 0.01, "warmup_steps": 30, "total_steps": 90, "schedule": "constant", "num_classes": 4}
    with steadyrun.record(tmp_path / "run", config) as run:
        run.watch(model, optimizer)
        for step in range(90):
            inputs = torch.randn(8, 2) * (math.nan if step == 71 else 1.0)
            loss = torch.nn.functional.cross_entropy(model(inputs), torch.randint(4, (8,)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.step(loss)
    folder = tmp_path / "run" / "incidents" / "step-0000071"
    folder.mkdir(parents=True)
    culprit = {"cause": "log-of-zero", "message": "log gave -inf at step 71", "step": 71, "fix": "Add an epsilon."}
    (folder / "replay.json").write_text(json.dumps({"culprit": culprit, "proof": {"verdict": "bit-equal"}}))
    ranking = steadyrun.check(tmp_path / "run", everything=True).ranking
    assert ranking.headline is not None
    assert ranking.headline.question.code == "E1.1"
    assert [(a.question.code, a.answer.step) for a in ranking.beside if a.answer.step == 0] == [("C2.1", 0)]
    assert "C2.1" not in codes(ranking.consequences)
    assert {"D1.1", "D1.3"} & set(codes(ranking.consequences))
