"""What a reader takes from a message: what to do, compared with what, and words that agree with their numbers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from audit_cases import CASES as AUDITS
from cases import CASES as CONFIGURATION
from cases import SAMPLED, SLOW, run, with_settings
from dynamics_cases import CASES as DYNAMICS
from log_cases import CASES as LOGS
from signature_cases import CASES as SIGNATURES
from vital_sign_cases import CASES as VITAL_SIGNS

from steadyrun.questions.configuration.sizes import change_in_words
from steadyrun.questions.form import GRADES, NOTE, Answer, Outcome
from steadyrun.signals.run_signals import Signals
from steadyrun.trees import QUESTIONS

CASES = CONFIGURATION + DYNAMICS + SIGNATURES + AUDITS + LOGS + VITAL_SIGNS
OUTCOMES = [(code, outcome) for code, question in QUESTIONS.items() for outcome in question.outcomes]
FOUND = [(code, outcome) for code, outcome in OUTCOMES if outcome.answer in GRADES]


def name(value: Any) -> str:
    return value.name if isinstance(value, Outcome) else str(value)


def answers(code: str, outcome: str) -> list[Answer]:
    return [QUESTIONS[code].ask(Signals(made)) for which, what, made in CASES if (which, what) == (code, outcome)]


@pytest.mark.parametrize(("code", "outcome"), [pair for pair in FOUND if pair[1].answer == NOTE], ids=name)
def test_a_note_ends_with_what_to_do(code: str, outcome: Outcome) -> None:
    assert outcome.fix.endswith("."), f"{code} {outcome.name} leaves the reader alone"


@pytest.mark.parametrize(("code", "outcome"), FOUND, ids=name)
def test_an_experiment_on_the_loss_names_its_comparison(code: str, outcome: Outcome) -> None:
    assert not re.search(r"loss (gets lower|falls faster|falls further|is lower,)", outcome.experiment), code


@pytest.mark.parametrize(("code", "what"), [("C7.3", "too-strong"), ("C7.5", "too-high")])
def test_regularisation_is_judged_by_validation(code: str, what: str) -> None:
    """Less regularisation nearly always lowers the training loss."""
    assert "If the validation loss" in QUESTIONS[code].outcome(what).experiment


def test_one_of_many_takes_the_singular() -> None:
    texts = [QUESTIONS[code].ask(Signals(made)).message for code, _, made in CASES]
    odd = [text for text in texts if re.search(r"\b1 of \d[\d,]* [a-z ]+ (are|have)\b|\b1 (step|batch)e?s\b", text)]
    assert not odd, "\n".join(odd)


def test_a_change_of_nothing_is_not_called_a_fall() -> None:
    assert change_in_words(0.0003) == "the loss changed by only 0.03%"
    assert change_in_words(0.05, 0.1) == "the loss fell by only 5%"
    assert change_in_words(0.5, 0.1) == "the loss fell by 50%"
    assert change_in_words(-0.5) == "the loss rose by 50%"


def test_a_fix_never_repeats_the_setting_in_use() -> None:
    share = {"epsilon_share/0": (SAMPLED, np.full(8, 0.95))}
    usual = QUESTIONS["C7.4"].ask(Signals(run(loss=SLOW, **share)))
    large = QUESTIONS["C7.4"].ask(Signals(run(loss=SLOW, manifest=with_settings(eps=1e-3), **share)))
    assert (usual.outcome, large.outcome) == ("epsilon", "epsilon")
    assert "gradients are so small" in usual.fix
    assert "eps=1e-8" not in usual.fix + usual.experiment
    assert large.fix == "Use eps=1e-8."


def test_one_spike_is_not_many() -> None:
    texts = [answer.message for answer in answers("C3.2", "few")]
    assert "The gradient norm is 150 at step 100, above 100." in texts


def test_a_loss_below_the_floor_of_smoothing_is_explained() -> None:
    assert any("computed without smoothing" in answer.message for answer in answers("C7.6", "hides-learning"))
