"""MLflow's folder and its database, written by MLflow's client, imported and compared point by point."""

import hashlib
import math
import shutil
import sqlite3
from pathlib import Path

import pytest
from imports import import_, imported, points, readable_or_told, runner
from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

import steadyrun
from steadyrun.cli import app

# MLflow's tables use a way of loading that newer SQLAlchemy does not recommend.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning")

START = 1_700_000_000_000
STEPS = 3_000


def loss_at(step: int) -> float:
    return 4.0 * math.exp(-step / 300) + 0.5


def write(address: str) -> list[str]:
    """Two runs of one experiment, one deleted, one without steps in another experiment."""
    client = MlflowClient(tracking_uri=address)
    experiment, other = client.create_experiment("exp"), client.create_experiment("other")
    first, second, deleted = (client.create_run(experiment, run_name=name) for name in ("first", "second", "gone"))
    held = [Metric("train/loss", loss_at(step), START + step, step) for step in range(STEPS)]
    held += [Metric("val/loss", loss_at(step) + 0.25, START + step, step) for step in range(0, STEPS, 100)]
    held += [Metric("grad_norm", value, START + 5, 5 + place)
             for place, value in enumerate((math.nan, math.inf, -math.inf, 1.5))]  # fmt: skip
    for start in range(0, len(held), 900):
        client.log_batch(first.info.run_id, metrics=held[start : start + 900])
    client.log_batch(first.info.run_id, params=[Param("lr", "0.25"), Param("optimizer", "adam")])
    resumed = [(START + step, step, 1.0) for step in range(60)]
    resumed += [(START + 1_000 + step, step, 9.0) for step in range(40, 80)]
    client.log_batch(second.info.run_id, metrics=[Metric("loss", value, time, step) for time, step, value in resumed])
    client.log_metric(deleted.info.run_id, "loss", 1.0, step=1)
    client.delete_run(deleted.info.run_id)
    stepless = client.create_run(other, run_name="stepless")
    for place in range(5):
        client.log_metric(stepless.info.run_id, "loss", float(place), timestamp=START + place)
    return [first.info.run_id, second.info.run_id, stepless.info.run_id]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("mlflow")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        write(f"sqlite:///{folder / 'mlflow.db'}")
        write(f"file://{folder / 'mlruns'}")
    return {"database": folder / "mlflow.db", "folder": folder / "mlruns"}


@pytest.fixture(params=["database", "folder"])
def store(request: pytest.FixtureRequest, stores: dict[str, Path]) -> Path:
    return stores[request.param]


def all_of(path: Path) -> str:
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
    return hashlib.sha256(b"".join(str(each).encode() + each.read_bytes() for each in files)).hexdigest()


def test_every_point_of_every_run(store: Path, tmp_path: Path) -> None:
    before, beside = all_of(store), sorted(store.parent.iterdir())
    runs = {Path(run["run"]).name: run for run in imported(store, tmp_path)}
    assert set(runs) == {"first", "second", "stepless"}
    first = runs["first"]["run"]
    assert points(first, "loss") == [(step, loss_at(step)) for step in range(STEPS)]
    assert points(first, "val_loss") == [(step, loss_at(step) + 0.25) for step in range(0, STEPS, 100)]
    norms = points(first, "grad_norm")
    assert [step for step, _ in norms] == [5, 6, 7, 8]
    assert math.isnan(norms[0][1])
    assert [value for _, value in norms[1:]] == [math.inf, -math.inf, 1.5]
    view = steadyrun.open_run(first)
    assert view.manifest["imported"]["config"] == {"lr": "0.25", "optimizer": "adam"}
    assert view.series("loss").times[7] == (START + 7) / 1000
    assert (all_of(store), sorted(store.parent.iterdir())) == (before, beside), "a log was changed by reading it"


def test_a_resume(store: Path, tmp_path: Path) -> None:
    (run,) = [run for run in imported(store, tmp_path) if Path(run["run"]).name == "second"]
    assert points(run["run"], "loss") == [(step, 1.0 if step < 40 else 9.0) for step in range(80)]
    assert len(points(run["run"], "loss", every_attempt=True)) == 100
    assert any("steps go back" in line for line in run["odd"])


def test_points_without_steps_are_counted(store: Path, tmp_path: Path) -> None:
    (run,) = [run for run in imported(store, tmp_path) if Path(run["run"]).name == "stepless"]
    assert run["step_unit"] == "point"
    assert points(run["run"], "loss") == [(place, float(place)) for place in range(5)]
    assert any("without a step" in line for line in run["odd"])


def test_one_run_of_the_folder_and_check(stores: dict[str, Path]) -> None:
    (path,) = [each.parent for each in stores["folder"].glob("*/*/params") if any(each.iterdir())]
    done = import_(path, "--dry-run")
    assert done.exit_code == 0
    assert "3,000" in done.stdout
    done = runner.invoke(app, ["check", str(path)])
    assert "is a log (MLflow (mlruns/ and mlflow.db))" in done.stderr
    assert "✓ the loss stays down" in done.stdout


def test_a_database_cut_off_anywhere(stores: dict[str, Path], tmp_path: Path) -> None:
    data = stores["database"].read_bytes()
    cut = tmp_path / "mlflow.db"
    for size in (1, 50, 100, 4_096, 20_000, len(data) // 2, len(data) - 300):
        cut.write_bytes(data[:size])
        done = import_(cut, "--out", tmp_path / f"out-{size}")
        assert done.exit_code in (0, 2), done.exception
        if done.exit_code == 2:
            assert "Traceback" not in done.stderr
            assert str(cut) in done.stderr


def test_a_metric_cut_off_anywhere(stores: dict[str, Path], tmp_path: Path) -> None:
    (original,) = [each.parent for each in stores["folder"].glob("*/*/params") if any(each.iterdir())]
    run = tmp_path / "run"
    shutil.copytree(original, run)
    (run / "metrics" / "val" / "loss").unlink()
    (run / "metrics" / "grad_norm").unlink()
    file = run / "metrics" / "train" / "loss"
    data = file.read_bytes()
    for size in range(0, 2_000, 211):
        file.write_bytes(data[:size])
        assert readable_or_told(run, tmp_path / f"out-{size}") == data[:size].count(b"\n")


def test_hostile_lines_are_left_out(tmp_path: Path) -> None:
    run = tmp_path / "mlruns" / "0" / "abc"
    (run / "metrics").mkdir(parents=True)
    (run / "meta.yaml").write_text("run_name: !!python/object/apply:os.system ['touch pwned']\n")
    lines = ["1 1.5 0", "x y z", f"1 2.0 {'9' * 5000}", "1 2.0", "1 1e999 2", "", f"{'7' * 100_000}", "1 3.5 3"]
    (run / "metrics" / "loss").write_text("\n".join(lines) + "\n")
    (held,) = imported(tmp_path / "mlruns", tmp_path / "out")
    assert (3, 3.5) in points(held["run"], "loss")
    assert any("not points, or are cut off" in line for line in held["odd"])
    assert not list(tmp_path.rglob("pwned"))


def test_a_database_of_something_else_is_no_log(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "cookies.db") as held:
        held.execute("CREATE TABLE cookies (name TEXT)")
    held.close()
    done = import_(tmp_path / "cookies.db")
    assert done.exit_code == 2
    assert "no table of the database" in done.stderr
