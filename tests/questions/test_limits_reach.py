"""A limit that the user changed counts wherever it is used: also when another question asks for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from audit_cases import CASES as AUDITS
from cases import CASES as CONFIGURATION
from cases import run
from dynamics_cases import CASES as DYNAMICS
from dynamics_cases import jump
from log_cases import CASES as LOGS
from signature_cases import CASES as SIGNATURES
from synthetic import Synthetic
from vital_sign_cases import CASES as VITAL_SIGNS

from steadyrun.questions import form
from steadyrun.questions.form import Limits, Question
from steadyrun.signals.run_signals import Signals
from steadyrun.trees import QUESTIONS
from steadyrun.trees.walker import walk

CASES = CONFIGURATION + DYNAMICS + SIGNATURES + AUDITS + LOGS + VITAL_SIGNS
# Two spikes with two deviations between them: one where the loss has to be back by half of one.
HUMP = run(loss=jump(320, 0.8, 2, base=jump(300, 0.8, 2, base=jump(300, 0.1, 40))))
CASES += [("D2.1", "flagged", HUMP), ("D2.3", "unexplained", HUMP)]
DEFAULTS = {code: {t.name: float(t.value) for t in question.thresholds} for code, question in QUESTIONS.items()}

# Who asks whom, the outcome with the default limits, the limit that is changed, its value, the outcome then.
ASKED = [
    ("C5.1", "too-wide", "C1.1", "high", 1000.0, "unusual"),
    ("C5.1", "too-wide", "C1.2", "high", 1000.0, "unusual"),
    ("C5.2", "dead-block", "S4.2", "share", 1e-8, "growing"),
    ("D2.1", "flagged", "D2.2", "back", 2.9, "flagged"),
    ("D2.2", "stays", "D2.1", "sigmas", 1000.0, "not-applicable"),
    ("D2.3", "unexplained", "D2.1", "sigmas", 1000.0, "not-applicable"),
    ("D2.3", "unexplained", "D2.2", "back", 2.9, "unexplained"),
    ("D2.4", "elevated", "D2.1", "sigmas", 1000.0, "not-applicable"),
    ("D2.4", "came-back", "D2.2", "within", 500.0, "not-applicable"),
    ("D4.2", "pass", "D4.1", "t", 1000.0, "not-applicable"),
    ("D4.3", "growing", "D4.1", "t", 1000.0, "not-applicable"),
    ("D4.4", "diverging", "D4.1", "t", 1000.0, "not-applicable"),
    ("D2.1", "noise", "D2.3", "noise", 1e-3, "flagged"),
    ("V1.7", "as-declared", "C2.1", "share", 5.0, "differs"),
    ("C4.1", "static", "F1.1", "near", 1e-6, "not-judged"),
    ("V1.2", "no-better", "F1.1", "near", 1e-6, "not-applicable"),
    ("C7.2", "small-enough", "V1.2", "beats", 0.01, "rate-too-high"),
    ("C7.2", "small-enough", "V1.3", "fewest", 100.0, "rate-too-high"),
    ("A5.8", "pass", "V1.2", "beats", 0.01, "not-scaled"),
    ("S1.4", "by-heart-alone", "V1.6", "larger", 2.0, "pass"),
    ("S1.4", "by-heart-alone", "A5.6", "ratio", 1.2, "pass"),
    ("C4.2", "gap", "A5.6", "lacks", 10.0, "overfitting"),
    ("C4.2", "gap", "V1.6", "larger", 100.0, "overfitting"),
    ("C4.2", "gap", "S1.4", "share", 1.2, "overfitting"),
    ("A5.7", "repeated-unrelated", "S1.4", "steps", 10_000.0, "repeated"),
    ("C3.1", "high", "C7.1", "clipped", 1000.0, "always-clipping"),
    ("C3.1", "high", "C7.2", "memory", 1e6, "always-clipping"),
    ("C3.1", "high", "C7.4", "outlives", 10.0, "always-clipping"),
    ("C3.1", "high", "C5.1", "rather_wide", 100.0, "always-clipping"),
    ("C4.1", "too-slow", "C7.1", "travel", 1e-6, "not-learning"),
    ("C4.1", "not-learning", "C7.4", "epsilon", 1.0, "too-slow"),
    ("C7.2", "small-enough", "V1.5", "dead", 0.1, "rate-too-high"),
    ("S1.4", "nothing-yet", "C7.1", "travel", 1e-6, "unrelated"),
    ("S1.4", "nothing-yet", "C7.2", "move", 10.0, "unrelated"),
    ("S1.4", "nothing-yet", "C7.3", "share", 1e6, "unrelated"),
    ("S1.4", "nothing-yet", "C7.4", "epsilon", 1.0, "unrelated"),
    ("S1.4", "nothing-yet", "C7.5", "rate", 1.0, "unrelated"),
    ("S1.4", "nothing-yet", "C7.6", "large", 1.0, "unrelated"),
    ("S1.4", "nothing-yet", "G3.3", "flat", 1e-6, "unrelated"),
    ("S1.4", "nothing-yet", "C5.1", "rather_wide", 100.0, "unrelated"),
    ("S1.4", "nothing-yet", "C1.1", "high", 1000.0, "unrelated"),
    ("S1.4", "nothing-yet", "C1.2", "high", 1000.0, "unrelated"),
]
FACTS = "F1.1"  # most questions ask it; a few show that its limits reach them


@pytest.mark.parametrize(("asker", "before", "asked", "name", "value", "after"), ASKED)
def test_what_an_asker_sees_changes(asker: str, before: str, asked: str, name: str, value: float, after: str) -> None:
    """Some run that is answered one way by default is answered otherwise when the asked question's limit is set."""
    synthetics = [case for code, outcome, case in CASES if code == asker and outcome == before]
    assert synthetics
    pairs = [(_answer(case, asker, {}), _answer(case, asker, {asked: {name: value}})) for case in synthetics]
    assert any(was.outcome == before and now.outcome == after and was != now for was, now in pairs), pairs


def test_every_asker_is_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    asker_asked: set[tuple[str, str]] = set()
    in_turn: set[tuple[str, str]] = set()
    plain = Limits.of

    def of(self: Limits, question: Question) -> Limits:
        asker_asked.add((current[-1], question.code))
        in_turn.add((current[0], question.code))
        return plain(self, question)

    def ask(self: Limits, question: Question, run: Any) -> Any:
        asker_asked.add((current[-1], question.code))
        in_turn.add((current[0], question.code))
        current.append(question.code)  # what it asks in turn, it asks itself
        try:
            return question.ask(run, self.everywhere.get(question.code), self.everywhere)
        finally:
            current.pop()

    monkeypatch.setattr(Limits, "of", of)
    monkeypatch.setattr(Limits, "ask", ask)
    for code, _, synthetic in CASES:
        current = [code]
        QUESTIONS[code].ask(Signals(synthetic))
    others = {(asker, asked) for asker, asked in asker_asked if asker != asked}
    listed = {(asker, asked) for asker, _, asked, *_ in ASKED}
    assert listed <= others | in_turn
    assert {pair for pair in others if pair[1] != FACTS} <= listed


def test_no_limits_without_those_of_the_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever limits a question makes on a walk know what the user changed everywhere."""
    made: list[Limits] = []

    class Spy(Limits):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            made.append(self)

    monkeypatch.setattr(form, "Limits", Spy)
    for _, _, synthetic in CASES[::5]:
        walk(QUESTIONS, Signals(synthetic), DEFAULTS, go_on=True)
    assert len(made) > len(CASES)
    assert all(limits.everywhere is DEFAULTS for limits in made)


def test_no_limit_of_another_question_as_a_constant() -> None:
    """A number that a threshold declares is read from limits; and nobody makes limits, or asks, in another way."""
    trees = {path.name: ast.parse(path.read_text()) for path in Path(form.__file__).parent.rglob("*.py")}
    declared = {name for tree in trees.values() for name in _declared(tree)}
    assert "SIGMAS" in declared
    for file, tree in trees.items():
        assert not _used(tree) & declared, file
        if file != "form.py":
            assert not [call for call in _calls(tree) if call == "Limits" or call.endswith("QUESTION.ask")], file


def _answer(case: Synthetic, code: str, changes: dict[str, dict[str, float]]) -> form.Answer:
    return next(a.answer for a in walk({code: QUESTIONS[code]}, Signals(case), changes).path)


def _thresholds(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Threshold":
            yield node


def _values(tree: ast.Module) -> list[ast.expr]:
    return [keyword.value for call in _thresholds(tree) for keyword in call.keywords if keyword.arg == "value"]


def _declared(tree: ast.Module) -> set[str]:
    return {value.id for value in _values(tree) if isinstance(value, ast.Name)}


def _used(tree: ast.Module) -> set[str]:
    """Names that are read anywhere but as the value of a threshold."""
    inside = {id(value) for value in _values(tree)}
    return {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in inside
    }


def _calls(tree: ast.Module) -> list[str]:
    return [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
