"""Calls of trackers join the record, and the trackers do not notice."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_recorder import KeptRecord

from steadyrun.scripts import tracker_calls
from steadyrun.scripts.import_watch import when_imported
from steadyrun.scripts.reported_values import ReportedValues

_FAKES = {
    "tensorboardX/__init__.py": "from tensorboardX.writer import SummaryWriter",
    "tensorboardX/writer.py": """
        class SummaryWriter:
            def __init__(self):
                self.calls = []
            def add_scalar(self, tag, scalar_value, global_step=None, walltime=None):
                self.calls.append((tag, scalar_value, global_step))
                return "added"
            def add_scalars(self, main_tag, tag_scalar_dict, global_step=None):
                self.calls.append((main_tag, tag_scalar_dict, global_step))
    """,
    "wandb/__init__.py": """
        from wandb.sdk.wandb_run import Run
        run = None
        def init():
            global run, log
            run = Run()
            log = run.log
            return run
    """,
    "wandb/sdk/__init__.py": "",
    "wandb/sdk/wandb_run.py": """
        class Run:
            def __init__(self):
                self.calls = []
            def log(self, data, step=None, commit=None):
                if not isinstance(data, dict):
                    raise ValueError("data must be a dictionary")
                self.calls.append((data, step))
    """,
    "mlflow/__init__.py": """
        calls = []
        def log_metric(key, value, step=None):
            calls.append((key, value, step))
            return key
        def log_metrics(metrics, step=None):
            calls.append((metrics, step))
    """,
}
"""Modules with the API of the trackers; the real ones are in tests/frameworks."""


@pytest.fixture
def trackers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, text in _FAKES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text))
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def imported(name: str) -> Any:
    return importlib.import_module(name)


@pytest.mark.usefixtures("trackers")
def test_tensorboard() -> None:
    record = KeptRecord()
    detach = tracker_calls.attach(record)
    writer = imported("tensorboardX").SummaryWriter()
    record.step = 7
    assert writer.add_scalar("Loss/train", 0.5, 700) == "added"
    writer.add_scalar("Loss/val", 0.75, 700)
    writer.add_scalars("Accuracy", {"train": 0.9, "val": 0.8}, 700)
    detach()
    writer.add_scalar("Loss/val", 9.0, 800)
    assert record.losses == [(7, 0.5)]
    assert record.validations == [(7, 0.75)]
    assert record.series("Accuracy/val") == [(7, 0.8)]
    assert [call[0] for call in writer.calls] == ["Loss/train", "Loss/val", "Accuracy", "Loss/val"]


@pytest.mark.usefixtures("trackers")
def test_wandb_run_and_module() -> None:
    record = KeptRecord()
    detach = tracker_calls.attach(record)
    wandb = imported("wandb")
    run = wandb.init()
    record.step = 3
    wandb.log({"train": {"loss": 1.5}, "lr": 1e-3, "epoch": 1, "text": "words", "flag": True})
    run.log({"val/loss": 1.25, "reward": 7}, step=99)
    with pytest.raises(ValueError, match="must be a dictionary"):
        wandb.log([1])
    detach()
    assert record.losses == [(3, 1.5)]
    assert record.validations == [(3, 1.25)]
    assert record.logged == [(3, {"reward": 7.0})]
    assert len(run.calls) == 2
    assert record.notes == []


@pytest.mark.usefixtures("trackers")
def test_mlflow_imported_before_and_after() -> None:
    mlflow = imported("mlflow")
    original = mlflow.log_metric
    record = KeptRecord()
    detach = tracker_calls.attach(record)
    assert mlflow.log_metric("val_loss", 2.0, step=4) == "val_loss"
    mlflow.log_metrics({"val_accuracy": 0.5, "big": 10**400})
    detach()
    assert mlflow.log_metric is original
    assert record.validations == [(0, 2.0)]
    assert record.series("val_accuracy") == []  # one number of the call could not be read
    assert len(record.notes) == 1


def test_nothing_is_imported_and_nothing_is_left() -> None:
    finders = list(sys.meta_path)
    before = set(sys.modules)
    detach = tracker_calls.attach(KeptRecord())
    assert len(sys.meta_path) == len(finders) + 1
    assert importlib.util.find_spec("no_such_tracker") is None
    detach()
    assert sys.meta_path == finders
    assert set(sys.modules) == before


@pytest.mark.usefixtures("trackers")
def test_looking_for_a_module_is_not_importing_it() -> None:
    calls: list[str] = []
    cancel = when_imported("mlflow", lambda: calls.append("mlflow"))
    again = when_imported("mlflow", lambda: calls.append("again"))
    spec = importlib.util.find_spec("mlflow")
    assert spec is not None
    assert calls == []
    module = imported("mlflow")
    assert calls == ["mlflow", "again"]
    assert "exec_module" not in vars(module.__loader__)
    assert type(module.__spec__.loader).__name__ == "SourceFileLoader"
    assert when_imported("mlflow", lambda: calls.append("at once")) is not None
    assert calls[-1] == "at once"
    cancel()
    again()


@pytest.mark.usefixtures("trackers")
def test_printed_and_sent_is_one_validation() -> None:
    record = KeptRecord()
    values = ReportedValues(record)
    record.step = 5
    values.take({"val_loss": 0.123456}, 5, "wandb", deliberate=True)
    values.take({"val_loss": 0.12}, 5, "stdout", deliberate=False)
    values.take({"val_loss": 0.1}, 6, "stdout", deliberate=False)
    values.settle()
    assert record.validations == [(5, 0.123456), (6, 0.1)]


def test_what_the_recorder_measures_itself_is_not_taken_again() -> None:
    record = KeptRecord()
    record.own_names = {"loss_netG"}
    ReportedValues(record).take({"loss_netG": 1.0, "loss_netD": 2.0}, 1, "stdout", deliberate=False)
    assert record.logged == [(1, {"loss_netD": 2.0})]


def test_the_name_that_fits_best_is_the_training_loss() -> None:
    record = KeptRecord()
    values = ReportedValues(record)
    values.take({"train loss": 4.0, "val loss": 4.1}, 0, "stdout", deliberate=False)
    values.take({"loss": 3.9, "time": 12.0, "lr": 1e-3, "mfu": 2.0}, 1, "stdout", deliberate=False)
    values.take({"train loss": 3.0, "val loss": 3.1}, 2, "stdout", deliberate=False)
    values.settle()
    assert record.validations == [(0, 4.1), (2, 3.1)]
    assert record.losses == [(1, 3.9)]
    assert record.logged == [(2, {"train loss": 3.0})]
