"""Trackers whose packages are not installed: the message names the extra, exit code 2, other logs are imported."""

import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import steadyrun
from steadyrun.cli import app

runner = CliRunner()


@pytest.fixture(autouse=True)
def _absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of the packages can be imported, installed or not."""
    for name in ("tensorboard", "wandb", "mlflow", "sqlalchemy"):
        for loaded in [each for each in sys.modules if each.split(".")[0] == name]:
            monkeypatch.delitem(sys.modules, loaded)
        monkeypatch.setitem(sys.modules, name, None)


def event_file(folder: Path) -> Path:
    path = folder / "events.out.tfevents.1700000000.host.1.0"
    path.write_bytes(b"\x18" + b"\0" * 11 + b"\x09\0\0\x80\x02\x55\xd9\x41\x1a\x0dbrain.Event:2" + b"\0" * 4)
    return path


def wandb_file(folder: Path) -> Path:
    path = folder / "run-abc.wandb"
    path.write_bytes(b":W&B\xe1\xbe\x00" + b"\0" * 200)
    return path


def database(folder: Path) -> Path:
    path = folder / "mlflow.db"
    held = sqlite3.connect(path)
    for table in ("experiments", "runs", "metrics", "params", "latest_metrics"):
        held.execute(f"CREATE TABLE {table} (name TEXT)")
    held.commit()
    held.close()
    return path


MADE = {"tensorboard": event_file, "wandb": wandb_file, "mlflow": database}


def steadyrun_(*arguments: object) -> Any:
    return runner.invoke(app, [*map(str, arguments)])


@pytest.mark.parametrize("extra", MADE)
@pytest.mark.parametrize("command", ["import", "check"])
def test_a_file_names_its_extra(tmp_path: Path, extra: str, command: str) -> None:
    path = MADE[extra](tmp_path)
    done = steadyrun_(command, path)
    assert done.exit_code == 2
    assert f"pip install 'steadyrun[{extra}]'" in done.stderr
    assert str(path) in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("extra", MADE)
def test_beside_other_logs_the_others_are_imported(tmp_path: Path, extra: str) -> None:
    logs = tmp_path / "logs"
    (logs / "tracked").mkdir(parents=True)
    MADE[extra](logs / "tracked")
    (logs / "plain.csv").write_text("step,loss\n" + "".join(f"{step},{4 - step / 10}\n" for step in range(20)))
    done = steadyrun_("import", logs, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert f"pip install 'steadyrun[{extra}]'" in done.stderr
    assert "1 of 2 logs could not be imported" in done.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["plain"]
    assert len(steadyrun.open_run(tmp_path / "out" / "plain").series("loss")) == 20


def test_train_and_validation_need_the_extra_too(tmp_path: Path) -> None:
    for split in ("train", "validation"):
        (tmp_path / split).mkdir()
        event_file(tmp_path / split)
    done = steadyrun_("import", tmp_path, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "pip install 'steadyrun[tensorboard]'" in done.stderr


def test_the_table_of_formats_names_the_extras() -> None:
    done = steadyrun_("import", "--formats")
    assert done.exit_code == 0
    for extra in MADE:
        (line,) = [line for line in done.stdout.splitlines() if line.startswith(f"{extra} ")]
        assert f"pip install 'steadyrun[{extra}]'" in line


def test_mlflows_folder_needs_no_extra(tmp_path: Path) -> None:
    run = tmp_path / "mlruns" / "0" / "0123456789abcdef"
    (run / "metrics" / "train").mkdir(parents=True)
    (run / "params").mkdir()
    (run / "meta.yaml").write_text("lifecycle_stage: active\nrun_name: bright-owl\n")
    (run / "params" / "lr").write_text("0.25")
    lines = [f"{1_700_000_000_000 + step} {4 - step / 10} {step}\n" for step in range(20)]
    (run / "metrics" / "train" / "loss").write_text("".join(lines))
    done = steadyrun_("import", tmp_path / "mlruns", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    view = steadyrun.open_run(tmp_path / "out" / "bright-owl")
    assert view.series("loss").values.tolist() == [4 - step / 10 for step in range(20)]
    assert view.manifest["imported"]["config"] == {"lr": "0.25"}
