"""What the trees say of real logs from public projects, beside what people who read them say."""

from __future__ import annotations

from pathlib import Path

import pytest

import steadyrun

LOGS = Path(__file__).parents[2].parent / "shared" / "reallogs"
pytestmark = pytest.mark.skipif(not LOGS.is_dir(), reason="the collection of real logs is not beside this checkout")

HEALTHY = [
    "deepspeed-chat-sft-opt1.3b/opt-1.3b-globalBatchSize128.log",
    "hf-eagle-star-gradspike/trainer_state.json",
    "hf-mistral-translator/trainer_state.json",
    "lightning-aos-valspike/version_2_metrics.csv",
    "lightning-pinn-plateau/version_25_metrics.csv",
    "lightning-pinn-spike/version_18_metrics.csv",
    "lightning-pinn-spike/version_5_metrics.csv",
    "llmc-gpt2-124m-mainlog/main.log",
    "megatron-gpt3-15b-golden/golden_values_gpt3_15b_h100.json",
    *(f"mng-optimizers-4x/{path.name}" for path in sorted((LOGS / "mng-optimizers-4x").glob("*.txt"))),
    *(f"mng-seeds-7x1750/{path.name}" for path in sorted((LOGS / "mng-seeds-7x1750").glob("*.txt"))),
    "nanogpt-healthy-bpc/output_iy4y4j7m.log",
    "nanogpt-healthy-bpc/output_vgpqdf1r.log",
    "parameter-golf-baseline/lowerlr_train.log",
    "parameter-golf-baseline/train.log",
    "yolo-close-mosaic-jump/results.csv",
]
# Too few points for a verdict, or no loss at all: no fault, and not silent.
CANNOT_TELL = [
    "bigscience-13b-spike/tr1-13B.megatron.log",
    "bloom176b-first-spike/tr11-176B-ml.megatron.log",
    "deepspeed-chat-rm-opt350m/opt-350m_globalBatchSize-64.log",
]
FAULTS = [
    ("hf-multihorizon-overfit/trainer_state.json", "C4.2", "overfitting", 401),
    ("nanogpt-char-overfit/output_kt2awly2_severe.log", "C4.2", "overfitting", 1250),
    ("nanogpt-char-overfit/output_mw8ngzqq.log", "C4.2", "overfitting", 1750),
    ("llmc-hector-nan-from-step0/gpt2_train.11672255_nan900.log", "D1.3", "loss-first", 1),
    ("llmc-hector-nan-from-step0/gpt2_train.11679031_nan16k.log", "D1.3", "loss-first", 1),
]
NOTES = [
    ("bigscience-13b-spike/tr1-13B.megatron.log", "D2.1", 29060, "7.34 at step 29050", "from 65,536 to 4,096"),
    (
        "bloom176b-first-spike/tr11-176B-ml.megatron.log",
        "D2.1",
        31219,
        "0.947 at step 31215",
        "4 steps before the loss",
    ),
    (
        "deepspeed-chat-rm-opt350m/opt-350m_globalBatchSize-64.log",
        "D3.2",
        None,
        "8 at its lowest",
        "1.09% of the steps",
    ),
    ("hf-eagle-star-gradspike/trainer_state.json", "C3.2", 22360, "82.4", "the loss is 4.28, before it 4.42"),
    ("lightning-aos-valspike/version_2_metrics.csv", "C4.2", 8828, "0.00407", "times the validations before and after"),
    (
        "lightning-pinn-plateau/version_25_metrics.csv",
        "S1.5",
        849,
        "flat since step 849",
        "a fall of 1% in the second half",
    ),
    ("lightning-pinn-spike/version_18_metrics.csv", "D2.1", 16149, "126", "step 16149"),
    ("parameter-golf-baseline/train.log", "S1.2", 2, "16.9 at step 2", "again at step 4"),
]


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    """`check(log)`: the report on a log, made once."""
    kept: dict[str, steadyrun.Report] = {}

    def checked(log: str) -> steadyrun.Report:
        if log not in kept:
            run = tmp_path_factory.mktemp("log") / "run"
            steadyrun.import_log(LOGS / log, run)
            kept[log] = steadyrun.check(run)
        return kept[log]

    return checked


@pytest.mark.parametrize("log", HEALTHY)
def test_healthy_logs_are_healthy(check, log: str) -> None:  # type: ignore[no-untyped-def]
    report = check(log)
    assert report.leaf is None, report.leaf
    assert report.suspects == ()
    assert report.verdict == "healthy"


@pytest.mark.parametrize("log", CANNOT_TELL)
def test_excerpts_are_never_healthy(check, log: str) -> None:  # type: ignore[no-untyped-def]
    """A jump in a few lines is a suspect; without one, a few lines say nothing."""
    assert check(log).verdict == ("suspect" if "spike" in log else "cannot-tell")


@pytest.mark.parametrize(("log", "code", "outcome", "step"), FAULTS)
def test_faults_are_found(check, log: str, code: str, outcome: str, step: int) -> None:  # type: ignore[no-untyped-def]
    leaf = check(log).leaf
    assert (leaf.question.code, leaf.answer.outcome, leaf.answer.step) == (code, outcome, step)


@pytest.mark.parametrize(("log", "code", "step", "number", "words"), NOTES)
def test_what_was_odd_is_noted(check, log: str, code: str, step: int | None, number: str, words: str) -> None:  # type: ignore[no-untyped-def]
    found = next(asked for asked in check(log).walk.path if asked.question.code == code)
    assert found.answer.kind == ("suspect" if code == "D2.1" and found.answer.outcome == "jump" else "note")
    assert found.answer.step == step
    assert number in found.answer.message
    assert words in found.answer.message


def test_nan_before_the_first_step_is_said(check) -> None:  # type: ignore[no-untyped-def]
    message = check("llmc-hector-nan-from-step0/gpt2_train.11672255_nan900.log").leaf.answer.message
    assert "The validation loss was already not finite at step 0" in message
