"""Forwarding to the real trackers: what was recorded is what they have."""

from __future__ import annotations

import importlib.util
import math
import random
import re
import shutil
import struct
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import steadyrun

HOSTILE = "a<b>|x\n\x1b[31m../.." + "é" * 300


def record(path: Path, forward: Any, *, losses: tuple[float, ...] = (3.0, 2.0, math.nan), **options: Any) -> None:
    patient = forward if isinstance(forward, steadyrun.Forward) else steadyrun.Forward(forward, wait=60)
    with steadyrun.record(path, config={"seed": 1, "note": HOSTILE}, forward=patient, **options) as run:
        for loss in losses:
            run.step(loss, batch=np.zeros((2, 2)))
        run.log(**{HOSTILE: 7.0})
        run.val(1.5)
        run.note("<script>alert(1)</script> **bold**")


def unharmed(path: Path) -> None:
    """Nothing failed on the way."""
    kinds = {event.kind for event in steadyrun.open_run(path).events()}
    assert not kinds & {"forward-failed", "forward-trouble", "probe-failed"}


# -- TensorBoard ---------------------------------------------------------------------------------------------


def accumulated(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    return found.Reload()


def test_tensorboard_has_every_point(tmp_path: Path) -> None:
    record(tmp_path / "run", "tensorboard")
    unharmed(tmp_path / "run")
    board = accumulated(tmp_path / "run/tensorboard")
    points = board.Scalars("loss")
    times = steadyrun.open_run(tmp_path / "run").series("loss").times
    assert [(each.step, str(each.value)) for each in points] == [(0, "3.0"), (1, "2.0"), (2, "nan")]
    assert [each.wall_time for each in points] == times.tolist()
    assert [each.value for each in board.Scalars("val_loss")] == [1.5]
    (odd,) = [tag for tag in board.Tags()["scalars"] if board.Scalars(tag)[0].value == 7.0]
    assert odd.isprintable()
    assert not [tag for tag in board.Tags()["scalars"] if "hash" in tag]
    (note,) = board.Tensors("steadyrun/note")
    assert note.tensor_proto.string_val == [b"    note at step 2: <script>alert(1)</script> **bold**"]
    assert board.SummaryMetadata("steadyrun/note").plugin_data.plugin_name == "text"


@pytest.mark.filterwarnings("ignore:html5lib's sanitizer:DeprecationWarning")  # TensorBoard's own copy says so
def test_tensorboard_shows_a_finding_verbatim(tmp_path: Path) -> None:
    from tensorboard.plugins.text.text_plugin import text_array_to_html

    record(tmp_path / "run", "tensorboard")
    (note,) = accumulated(tmp_path / "run/tensorboard").Tensors("steadyrun/note")
    shown = text_array_to_html(np.array(note.tensor_proto.string_val[0], dtype=object), enable_markdown=True)
    assert "<strong>" not in shown
    assert "**bold**" in shown
    assert "<script>" not in shown


def test_tensorboard_goes_on_after_a_resume_and_forgets_what_was_repeated(tmp_path: Path) -> None:
    for start, losses in ((None, (5.0, 4.0, 3.0, 2.0)), (2, (30.0, 20.0))):
        record(tmp_path / "run", "tensorboard", losses=losses, first_step=start)
    board = accumulated(tmp_path / "run/tensorboard")
    assert [(each.step, each.value) for each in board.Scalars("loss")] == [(0, 5.0), (1, 4.0), (2, 30.0), (3, 20.0)]


def test_tensorboard_in_a_folder_of_ones_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with steadyrun.record("run", forward="tensorboard:logs/x") as run:
        monkeypatch.chdir("/")  # programs do
        run.log(loss=1.0)
    assert accumulated(tmp_path / "logs/x").Scalars("loss")


def test_tensorboard_that_cannot_write_costs_the_run_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("no folder")
    forward = steadyrun.Forward(f"tensorboard:{tmp_path / 'file/x'}", wait=5)
    with steadyrun.record(tmp_path / "run", forward=forward) as run:
        run.log(loss=1.0)
    view = steadyrun.open_run(tmp_path / "run")
    assert view.state == "finished"
    assert len(view.events("forward-failed")) == 1
    assert capsys.readouterr().err.count("The run directory has everything") == 1


def test_tensorboard_sees_a_fault(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with steadyrun.record(tmp_path / "run", forward="tensorboard") as run:
        run.watch(model, optimizer)
        for step in range(20):
            loss = model(torch.randn(8, 4)).square().mean() * (math.nan if step > 10 else 1.0)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.step(loss)
    faults = steadyrun.open_run(tmp_path / "run").events("fault")
    board = accumulated(tmp_path / "run/tensorboard")
    shown = [each.tensor_proto.string_val[0].decode() for each in board.Tensors("steadyrun/fault")]
    assert faults
    assert len(shown) == len(faults)
    assert faults[0].fields["code"] in shown[0]
    assert faults[0].fields["fix"][:40] in shown[0]
    assert board.Tensors("steadyrun/verdict")
    assert [each.step for each in board.Scalars("grad_norm")] == list(range(20))


def test_the_pages_first_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parent.parent.parent / "docs/forwarding.md").read_text()
    program = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    monkeypatch.chdir(tmp_path)
    exec(program, {})
    unharmed(tmp_path / "experiments/my-run")
    board = accumulated(tmp_path / "experiments/my-run/tensorboard")
    assert len(board.Scalars("loss")) == 200
    assert [each.step for each in board.Scalars("val_loss")] == [199]


# -- Weights & Biases ----------------------------------------------------------------------------------------


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    import wandb

    wandb.teardown()
    yield wandb
    wandb.teardown()


def history(folder: Path) -> list[dict[str, Any]]:
    """The rows in the offline files, in the order they were logged, when wandb's own process is done with them."""
    import wandb

    wandb.teardown()
    return [row for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")) for row in rows_of(file)]


def rows_of(file: Path) -> Iterator[dict[str, Any]]:
    import json

    for record in records_of(file):
        if record.WhichOneof("record_type") == "history":
            yield {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}


def records_of(file: Path) -> Iterator[Any]:
    """The records of an offline file: a header of seven bytes, then LevelDB's log format."""
    from wandb.proto import wandb_internal_pb2

    data, place, whole = file.read_bytes(), 7, b""
    while place + 7 <= len(data):
        room = 32768 - place % 32768
        length, kind = struct.unpack_from("<HB", data, place + 4)
        if room < 7 or kind == 0:  # the rest of a block is empty
            place += room
            continue
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in {1, 4}:  # a whole record, or the last part of one
            yield wandb_internal_pb2.Record.FromString(whole)
            whole = b""


def test_wandb_has_every_point(tmp_path: Path, offline: Any) -> None:
    record(tmp_path / "run", "wandb")
    unharmed(tmp_path / "run")
    rows = history(tmp_path)
    assert [(row["step"], str(row["loss"])) for row in rows if "loss" in row] == [(0, "3"), (1, "2"), (2, "nan")]
    assert [(row["step"], row["val_loss"]) for row in rows if "val_loss" in row] == [(2, 1.5)]
    assert not {name for row in rows for name in row if "hash" in name}
    assert [row["steadyrun/note"] for row in rows if "steadyrun/note" in row] == [
        "note at step 2: <script>alert(1)</script> **bold**"
    ]
    assert offline.run is None  # the program's own calls of wandb are not led to it


def test_wandb_takes_up_its_run_after_a_resume(tmp_path: Path, offline: Any) -> None:
    for _ in range(2):
        record(tmp_path / "run", "wandb:project")
    files = sorted(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    (event,) = steadyrun.open_run(tmp_path / "run").events("forwarding")
    ids = {record.run.run_id for file in files for record in records_of(file) if record.HasField("run")}
    assert len(files) == 2
    assert ids == {event.fields["id"]}


def test_an_active_wandb_run_is_joined_and_stays_its_owners(tmp_path: Path, offline: Any) -> None:
    own = offline.init(project="mine")
    with steadyrun.record(tmp_path / "run", flush_steps=1, forward="wandb") as run:
        for step in range(30):
            run.log(loss=1.0)
            own.log({"mine": float(step)}, step=step)
    assert offline.run is own
    own.log({"mine": 30.0}, step=30)
    own.finish()
    rows = history(tmp_path)
    assert [row["mine"] for row in rows if "mine" in row] == [float(step) for step in range(31)]  # nothing was dropped
    joined = [row for row in rows if "steadyrun/loss" in row]
    assert joined
    assert joined[-1]["steadyrun/step"] == 29


def test_a_wandb_that_hangs_is_left_behind(
    tmp_path: Path, offline: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    never = threading.Event()
    monkeypatch.setattr(offline, "init", lambda **_: never.wait())
    record(tmp_path / "run", steadyrun.Forward("wandb", wait=0.3))
    never.set()
    view = steadyrun.open_run(tmp_path / "run")
    assert view.state == "finished"
    assert len(view.events("forward-failed")) == 1
    assert capsys.readouterr().err.count("forwarding to wandb stopped") == 1


def test_wandb_without_a_key_is_told_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path))
    wandb.teardown()
    with pytest.raises(steadyrun.UsageError, match="wandb login"):
        steadyrun.record(tmp_path / "run", forward="wandb")
    wandb.teardown()
    assert not (tmp_path / "run").exists()


# -- MLflow --------------------------------------------------------------------------------------------------


QUIET = pytest.mark.filterwarnings(
    "ignore::FutureWarning",  # MLflow says that its file store will go
    "ignore:The ``noload`` loader strategy",  # MLflow uses what SQLAlchemy deprecates
)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """An empty database of MLflow, which takes seconds to make; None where only the small MLflow is installed."""
    mlflow = pytest.importorskip("mlflow")
    if importlib.util.find_spec("sqlalchemy") is None or importlib.util.find_spec("alembic") is None:
        return None
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mlflow.MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty: Path | None) -> Any:
    """A client of a store of its own: a database, or files."""
    import mlflow

    if empty is None:
        address = (tmp_path / "mlruns").as_uri()
        monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    else:
        address = f"sqlite:///{shutil.copy(empty, tmp_path / 'mlflow.db')}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_ID", raising=False)  # mlflow.set_experiment of another test leaves it there
    return mlflow.MlflowClient()


def the_run(store: Any, experiment: str) -> Any:
    (found,) = store.search_runs([store.get_experiment_by_name(experiment).experiment_id])
    return found


@QUIET
def test_mlflow_has_every_point(tmp_path: Path, store: Any) -> None:
    record(tmp_path / "run", "mlflow:trial", losses=tuple(float(each) for each in range(1200)))
    unharmed(tmp_path / "run")
    found = the_run(store, "trial")
    points = store.get_metric_history(found.info.run_id, "loss")
    assert sorted((each.step, each.value) for each in points) == [(each, float(each)) for each in range(1200)]
    assert found.data.metrics["val_loss"] == 1.5
    assert [name for name, value in found.data.metrics.items() if value == 7.0]
    assert found.data.tags["steadyrun.note.step-1199"].endswith("<script>alert(1)</script> **bold**")
    assert found.data.params["seed"] == "1"
    assert found.info.status == "FINISHED"
    assert not [name for name in found.data.metrics if "hash" in name]


@QUIET
def test_mlflow_takes_up_its_run_after_a_resume(tmp_path: Path, store: Any) -> None:
    for _ in range(2):
        record(tmp_path / "run", "mlflow:trial", losses=(2.0, 1.0))
    points = store.get_metric_history(the_run(store, "trial").info.run_id, "loss")
    assert sorted(each.step for each in points) == [0, 1, 2, 3]
    assert len(steadyrun.open_run(tmp_path / "run").events("forwarding")) == 1


@QUIET
def test_an_active_mlflow_run_is_joined_and_stays_its_owners(tmp_path: Path, store: Any) -> None:
    import mlflow

    mlflow.set_experiment("mine")
    with mlflow.start_run() as own:
        record(tmp_path / "run", "mlflow", losses=(2.0, math.inf))
        assert mlflow.active_run().info.run_id == own.info.run_id
        mlflow.log_metric("mine", 1.0)
    found = the_run(store, "mine")
    assert {"steadyrun/loss", "mine"} <= set(found.data.metrics)


# -- all of them ---------------------------------------------------------------------------------------------


@QUIET
def test_random_states_are_left_alone(tmp_path: Path, offline: Any, store: Any) -> None:
    random.seed(3)
    np.random.seed(3)
    torch.manual_seed(3)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    record(tmp_path / "run", ["tensorboard", "wandb", "mlflow"])
    unharmed(tmp_path / "run")
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before
