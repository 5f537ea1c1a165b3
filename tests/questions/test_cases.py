"""Every question on its small synthetic series, and on series that nobody would record."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from audit_cases import CASES as AUDITS
from cases import CASES as CONFIGURATION
from cases import CONFIG, MANIFEST, run
from dynamics_cases import CASES as DYNAMICS
from dynamics_cases import CHECKPOINT, NORMS, RISEN, THROWN, jump, put
from goal_cases import CASES as GOALS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log_cases import CASES as LOGS
from process_cases import CASES as PROCESSES
from rank_cases import CASES as RANKS
from signature_cases import CASES as SIGNATURES
from synthetic import Synthetic
from vital_sign_cases import CASES as VITAL_SIGNS

from steadyrun.questions.form import CANNOT_TELL, FAULT, NOT_APPLICABLE, PASS, SUSPECT, Question
from steadyrun.records import Series
from steadyrun.signals.run_signals import Signals
from steadyrun.trees import QUESTIONS

CASES = CONFIGURATION + DYNAMICS + SIGNATURES + AUDITS + RANKS + GOALS + LOGS + VITAL_SIGNS + PROCESSES


def label(case: tuple[str, str, Any]) -> str:
    return f"{case[0]} {case[1]}"


@pytest.mark.parametrize(("code", "outcome", "synthetic"), CASES, ids=[label(case) for case in CASES])
def test_the_answer(code: str, outcome: str, synthetic: Synthetic) -> None:
    answer = QUESTIONS[code].ask(Signals(synthetic))
    assert answer.outcome == outcome, answer.message
    assert answer.message.strip()
    if answer.kind == FAULT:
        assert answer.fix
        assert any(character.isdigit() for character in answer.message), "a claim shows its numbers"
    if answer.kind == SUSPECT:
        assert answer.experiment.endswith((".", "C2.1"))
        assert any(character.isdigit() for character in answer.message), "a claim shows its numbers"
    if answer.kind == CANNOT_TELL:
        assert answer.missing
        assert answer.how_to_record


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_every_outcome_is_shown(question: Question) -> None:
    """No outcome without a series that reaches it, and a series for which each question cannot tell."""
    reached = {outcome for code, outcome, _ in CASES if code == question.code}
    assert {outcome.name for outcome in question.outcomes} - reached <= UNREACHED.get(question.code, set())
    assert reached & {"missing", "not-applicable"}


UNREACHED = {"C2.1": {"idle", "differs-from-scheduler"}}  # shown on recorded runs in test_schedulers.py


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_questions_are_complete(question: Question) -> None:
    assert question.asks.endswith("?")
    assert question.why.endswith(".")
    assert question.needs
    names = [outcome.name for outcome in question.outcomes]
    assert len(names) == len(set(names))
    for outcome in question.outcomes:
        assert (outcome.answer != FAULT) or outcome.fix.endswith("."), outcome.name
    for threshold in question.thresholds:
        assert threshold.decision
        assert threshold.meaning


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_a_healthy_synthetic_run_passes(question: Question) -> None:
    answer = question.ask(Signals(run()))
    harmless = {"clips-always", "flagged", "noise"}
    silent = answer.kind == CANNOT_TELL and question.code in {
        "A2.2",
        "A2.6",
        "A4.8",
        "A5.3",
    }  # need more than this run has
    assert answer.kind in {PASS, NOT_APPLICABLE} or answer.outcome in harmless or silent, answer.message


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_nothing_recorded(question: Question) -> None:
    """No run at all: no crash, and never a pass or a fault."""
    answer = question.ask(Signals(Synthetic()))
    assert answer.kind in {CANNOT_TELL, NOT_APPLICABLE}


BY_STEPS = [case for case in LOGS if case[2].manifest["imported"]["step_unit"] == "step"]


@pytest.mark.parametrize(("code", "outcome", "log"), BY_STEPS, ids=map(label, BY_STEPS))
def test_a_log_is_answered_like_a_record_of_the_same_numbers(code: str, outcome: str, log: Synthetic) -> None:
    record = Synthetic(log.manifest["config"], **{name: as_given(log.series(name)) for name in log.names()})
    assert QUESTIONS[code].ask(Signals(record)).outcome == outcome


def as_given(series: Series) -> tuple[Any, Any]:
    return series.steps, series.values


def test_the_last_checkpoint_before_a_lasting_spike_is_named() -> None:
    damaged = run(loss=THROWN, grad_norm=put(NORMS, {300: 9.0}), val_loss=RISEN, events=[CHECKPOINT])
    answer = QUESTIONS["D2.4"].ask(Signals(damaged))
    assert answer.outcome == "elevated"
    assert "checkpoint before it is from step 200" in answer.message


def test_what_rose_before_the_loss_is_told_with_its_lead() -> None:
    norms = put(NORMS, {294: 60.0, 300: 100.0})
    answer = QUESTIONS["D2.3"].ask(Signals(run(loss=jump(300, 1.0), grad_norm=norms)))
    assert answer.outcome == "long-tail-batch"
    assert "The gradient norm rose 6 steps before the loss" in answer.message
    updates = put(np.full(600, 1e-3), {290: 1e-2})
    answer = QUESTIONS["D2.3"].ask(Signals(run(loss=jump(300, 1.0), grad_norm=norms, **{"update_ratio/a": updates})))
    assert "The update of a rose 10 steps before the loss" in answer.message
    answer = QUESTIONS["D2.3"].ask(Signals(run(loss=jump(300, 1.0))))
    assert "before the loss" not in answer.message


def test_no_question_declares_a_threshold_twice() -> None:
    for question in QUESTIONS.values():
        names = [threshold.name for threshold in question.thresholds]
        assert len(names) == len(set(names)), question.code


VALUES = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, 1.0, -1.0, 1e-300, 1e308, -1e308, float("nan"), float("inf")]),
)
NAMES = [
    "loss", "grad_norm", "grad_norm_applied", "clip_threshold", "clipped", "lr/0", "lr/1", "val_loss", "tokens",
    "examples", "backward_loss", "backwards", "scheduler_steps", "activation/a", "activation/b", "moment1_norm/0",
    "moment2_norm/0", "step_count/0", "update_scale/0", "update_misfit/0", "update_ratio/a", "example_hash/train",
    "example_hash/val", "batch_index", "skipped", "loss_scale", "batch_hash", "block_param_norm/a", "class_loss/x",
    "class_loss/y", "optimizer_steps", "block_grad_norm/a", "class_loss/regular", "class_loss/irregular",
    "val_class_loss/regular", "val_class_loss/irregular", "spectral_norm/a.weight", "dead_units/a", "silent_inputs/a",
    "dead_heads/a", "low_entropy_share/a/0", "lowest_head_entropy/a", "future_attention/a", "future_attention/b",
    "update_decay/0", "activation/embed", "grad_norm_left", "grad_norm_used", "training", "stalled", "modules_in_eval",
    "targets/same", "targets/next", "targets/second", "targets/supervised", "targets/padding", "targets/ends_given",
    "targets/ends_asked", "targets/alike", "targets/alike_overall", "targets/entropy", "targets/count", "log_z",
    "ignored_labels", "repeated_tokens", "batchnorm_values", "epsilon_share/0",
]  # fmt: skip


@st.composite
def anything(draw: st.DrawFn) -> Synthetic:
    """Series of any length at any steps, unsorted and repeated; declarations of any kind."""
    series = {}
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        length = draw(st.sampled_from([0, 1, 2, 5, 25, 60]))
        steps = draw(st.lists(st.integers(0, 10**9), min_size=length, max_size=length))
        if draw(st.booleans()):
            steps = list(range(length))
        series[name] = (steps, draw(st.lists(VALUES, min_size=length, max_size=length)))
    junk = st.one_of(st.none(), VALUES, st.text(max_size=5), st.booleans(), st.integers(), st.lists(st.integers()))
    declared = {**CONFIG, "causal": True, "baseline_loss": 1.7, "weight_decay": 0.1}
    config = {key: draw(junk) if draw(st.booleans()) else value for key, value in declared.items()}
    manifest = {key: draw(junk) if draw(st.booleans()) else value for key, value in MANIFEST.items()}
    state = draw(st.sampled_from(["running", "finished", "killed"]))
    return Synthetic(config, manifest, (), state, **series)


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(anything())
def test_no_series_crashes_a_question(synthetic: Synthetic) -> None:
    for question in QUESTIONS.values():
        assert question.ask(Signals(synthetic)).message
