"""What check says of a second collection of public logs, beside the label that a reader gave each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from steadyrun.cli.log_input import LogOptions, log_runs
from steadyrun.report import Report
from steadyrun.report.report import check_with

LOGS = Path(__file__).parents[2].parent / "shared" / "reallogs2"
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not LOGS.is_dir(), reason="the second collection of real logs is not beside the checkout"),
]

HEALTHY = ("healthy",)
NO_ALARM = ("healthy", "cannot-tell")  # losses of opponents alone do not show whether they learn
ANY = ("fault", "suspect", "cannot-tell", "healthy")
EXPECTED: dict[str, tuple[str, tuple[str, ...], str]] = {
    "chainer-began/log": ("healthy", NO_ALARM, ""),
    "cyclegan-samcw/loss_log.txt": ("faulty", ("suspect",), "V1.1:won"),
    "cyclegan-samcw/loss_unet_log.txt": ("faulty", ("suspect",), "V1.1:won"),
    "dreamer-fetchreach/metrics.jsonl": ("unclear", ANY, ""),
    "jde/log_train.txt": ("healthy", HEALTHY, ""),
    "kospeech/log_train.txt": ("healthy", NO_ALARM, ""),  # its first loss is far below those that follow
    "lf-grpo360/trainer_log.jsonl": ("unclear", ANY, ""),
    "lf-nsllm/trainer_log.jsonl": ("healthy", HEALTHY, ""),
    "lightning-sparserecon/version_12_metrics.csv": ("unclear", ANY, ""),
    "lightning-sparserecon/version_14_metrics.csv": ("unclear", ANY, ""),
    "mri-unet/1-train_7_epochs.md": ("healthy", HEALTHY, ""),
    "mri-unet/2-train_10_epochs.md": ("healthy", HEALTHY, ""),
    "olmo-150m/train.log": ("healthy", HEALTHY, ""),
    "olmo-1b-reproduce/train_20251211_002555.log": ("healthy", HEALTHY, ""),
    "paddle-cait/log_train.txt": ("healthy", HEALTHY, ""),
    "ssd-houyz/log_train.txt": ("healthy", HEALTHY, ""),
    "stargan-pitch/log_train.txt": ("healthy", NO_ALARM, ""),
    "verl-train/train.out": ("faulty", ("suspect",), "V1.8:no-signal"),
}
"""By log: its label, the verdicts that are right, and what a faulty one is found to have."""


def reports(log: str) -> list[Report]:
    """The report on each run of a log; each is read before the next one is imported."""
    return [check_with(run.path, {}) for run in log_runs(str(LOGS / log), LogOptions())]


@pytest.mark.parametrize("log", EXPECTED)
def test_a_log_is_judged_as_its_label_says(log: str) -> None:
    label, verdicts, wanted = EXPECTED[log]
    found = reports(log)
    worst = min((report.verdict for report in found), key=ANY.index)
    assert worst in verdicts
    answers = {f"{asked.question.code}:{asked.answer.outcome}" for report in found for asked in report.suspects}
    assert label != "faulty" or wanted in answers
    assert "failed" not in {asked.answer.outcome for report in found for asked in report.walk.path}


def test_none_is_left_out() -> None:
    there = {path.relative_to(LOGS).as_posix() for path in LOGS.glob("*/*") if "tfevents" not in path.name}
    assert there == set(EXPECTED), "events of TensorBoard need an extra: tests/frameworks reads those"
