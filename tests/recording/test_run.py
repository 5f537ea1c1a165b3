"""What users call, with good and bad arguments, and how runs end."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_programs import batch_of, loss_of, mlp, values

import steadyrun

# -- bad arguments: one clear error before training starts -------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": 7}, "path must be the folder"),
        ({"path": ""}, "path must be the folder"),
        ({"name": "../outside"}, "not a valid name"),
        ({"name": ".."}, "not a valid name"),
        ({"name": "a/b"}, "not a valid name"),
        ({"config": [1, 2]}, "config must be a dict"),
        ({"config": {"lr_max": "fast"}}, "lr_max must be a number"),
        ({"config": {"total_steps": 1.5}}, "total_steps must be a whole number"),
        ({"config": {"reduction": "median"}}, "reduction must be 'mean' or 'sum'"),
        ({"every": {"activation": 10}}, "no probe 'activation'. Did you mean 'activations'"),
        ({"every": {"spectral": -1}}, "spectral must be a whole number"),
        ({"every": "often"}, "must be a whole number"),
        ({"flush_steps": 0}, "flush_steps must be a whole number of at least 1"),
        ({"flush_seconds": "soon"}, "flush_seconds must be a number"),
        ({"first_step": -3}, "first_step must be a whole number"),
        ({"rank": -1}, "rank must be a whole number"),
    ],
)
def test_bad_arguments_of_record(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(steadyrun.UsageError) as caught:
        steadyrun.record(**{"path": tmp_path / "run", **options})
    assert message in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(steadyrun.RunDirectoryError, match="is a file"):
        steadyrun.record(tmp_path / "file")
    with pytest.raises(steadyrun.RunDirectoryError, match=r"cannot write to .* Choose a writable folder"):
        steadyrun.record(tmp_path / "file" / "below")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "gpt"}, "model must be a torch.nn.Module, not str"),
        ({"optimizer": 3}, "optimizer must be a torch optimizer"),
        ({"model": torch.nn.LazyLinear(3)}, "run one forward pass before watch"),
        ({"scheduler": 3}, "scheduler must have a step method"),
        ({"scaler": 3}, "scaler must be a torch.amp.GradScaler"),
        ({"loss_fn": 3}, "loss_fn must be callable"),
        ({"blocks": "layer"}, "blocks must be a list"),
        ({"blocks": ["nothing"]}, "no module matches 'nothing'"),
    ],
)
def test_bad_arguments_of_watch(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    model = mlp()
    good: dict[str, Any] = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}
    with steadyrun.record(tmp_path) as run, pytest.raises(steadyrun.UsageError, match=message):
        run.watch(**{**good, **change})


def test_a_name_below_a_folder(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path, name="run 1") as run:
        run.step(1.0)
    assert run.path == tmp_path / "run 1"
    assert values(tmp_path / "run 1", "loss") == [1.0]


# -- how runs end ------------------------------------------------------------------------------------


def test_finished(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path) as run:
        assert steadyrun.open_run(tmp_path).state == "running"
        run.step(1.0)
    manifest = steadyrun.open_run(tmp_path).manifest
    assert (manifest["state"], manifest["last_step"], manifest["failure"]) == ("finished", 0, None)
    run.step(2.0)  # after the end nothing happens, and nothing breaks
    run.close()
    assert values(tmp_path, "loss") == [1.0]


def test_crashed_with_a_summary(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), steadyrun.record(tmp_path) as run:
        run.step(1.0)
        1 / 0  # noqa: B018
    view = steadyrun.open_run(tmp_path)
    failure = view.manifest["failure"]
    assert view.state == "crashed"
    assert failure["type"] == "ZeroDivisionError"
    assert "test_run.py" in failure["traceback"][-1]
    assert "ZeroDivisionError: division by zero" in str(view)


def test_out_of_memory_is_an_event(tmp_path: Path) -> None:
    with pytest.raises(torch.OutOfMemoryError), steadyrun.record(tmp_path) as run:
        run.step(1.0)
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
    (event,) = steadyrun.open_run(tmp_path).events("out-of-memory")
    assert "2.00 GiB" in event.fields["why"]


def test_a_clean_exit_is_finished(tmp_path: Path) -> None:
    with pytest.raises(SystemExit), steadyrun.record(tmp_path):
        sys.exit(0)
    assert steadyrun.open_run(tmp_path).state == "finished"


@pytest.mark.parametrize(("ending", "state"), [("", "finished"), ("raise RuntimeError('boom')", "crashed")])
def test_without_a_with_block(tmp_path: Path, ending: str, state: str) -> None:
    program = f"import steadyrun\nrun = steadyrun.record({str(tmp_path)!r})\nrun.step(1.0)\n{ending}\n"
    subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    view = steadyrun.open_run(tmp_path)
    assert view.state == state
    assert view.series("loss").values.tolist() == [1.0]


def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    """As a data loader's workers do: the child inherits the run and must leave it alone."""
    program = f"""
import os, steadyrun
run = steadyrun.record({str(tmp_path)!r})
run.step(1.0)
if os.fork() == 0:
    run.step(99.0)
    run.close()
    raise SystemExit
os.wait()
run.step(2.0)
run.close()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
    assert values(tmp_path, "loss") == [1.0, 2.0]
    assert steadyrun.open_run(tmp_path).state == "finished"


# -- log, val, note ----------------------------------------------------------------------------------


def test_log_takes_any_scalar(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path) as run:
        run.step(1.0)
        run.log(a=1, b=np.float32(2.5), c=torch.tensor(3.5), d=np.array(4), e=True, missing=None)
        run.step(1.0)
        run.log(a=2.0, lr=0.1, val_loss=7.0)
        run.log(step=10, a=3.0)
    view = steadyrun.open_run(tmp_path)
    assert view.series("a").steps.tolist() == [0, 1, 10]
    assert [view.series(name).values[0] for name in "bcde"] == [2.5, 3.5, 4, 1]
    assert view.series("lr/0").values.tolist() == [0.1]
    assert (view.series("val_loss").steps.tolist(), view.series("val_loss").values.tolist()) == ([1], [7.0])
    assert "missing" not in view.names()


def test_a_loop_that_only_logs(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path) as run:
        for step in range(5):
            run.log(loss=5.0 - step, grad_norm=0.5)
            run.log(accuracy=step / 5)
    view = steadyrun.open_run(tmp_path)
    for name in ("loss", "grad_norm", "accuracy"):
        assert view.series(name).steps.tolist() == [0, 1, 2, 3, 4]


def test_no_framework_is_needed(tmp_path: Path) -> None:
    program = f"""
import sys, numpy, steadyrun
with steadyrun.record({str(tmp_path)!r}, config={{"seed": 1}}) as run:
    for step in range(3):
        run.step(numpy.float64(step), batch=numpy.ones((4, 2)), class_losses={{"easy": 0.5}})
        run.log(extra=1)
    run.val(2.0, accuracy=0.5, batches=[numpy.ones((4, 2))])
heavy = {{"torch", "typer", "rich", "plotly", "jinja2", "starlette", "jax"}} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    view = steadyrun.open_run(tmp_path)
    assert view.series("class_loss/easy").values.tolist() == [0.5] * 3
    assert view.series("accuracy").values.tolist() == [0.5]
    assert view.series("examples").values.tolist() == [4.0] * 3


def test_validation_in_all_its_parts(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path) as run:
        run.val(torch.tensor(9.0))  # before the first step
        run.step(1.0)
        run.val(float("nan"), class_losses={"a": 1.0, "b": float("inf")})
    view = steadyrun.open_run(tmp_path)
    assert view.series("val_loss").steps.tolist() == [0, 0]
    assert np.isnan(view.series("val_loss").values[1])
    assert view.series("val_class_loss/b").values.tolist() == [np.inf]


def test_explicit_steps(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path) as run:
        for step in (10, 20, 30):
            run.step(float(step), step=step, batch_index=step // 10)
        run.step(31.0)
    assert steadyrun.open_run(tmp_path).series("loss").steps.tolist() == [10, 20, 30, 31]
    assert values(tmp_path, "batch_index") == [1, 2, 3, 3]


def test_threads_may_log(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path, flush_steps=10) as run:
        run.step(1.0)
        workers = [
            threading.Thread(target=lambda name=name: [run.log(**{name: n}) for n in range(200)]) for name in "abc"
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert [len(steadyrun.open_run(tmp_path).series(name)) for name in "abc"] == [200] * 3


# -- manifest ----------------------------------------------------------------------------------------


def test_the_manifest_tells_the_whole_story(tmp_path: Path, tutor_run: Any) -> None:
    manifest = tutor_run(steps=60).manifest
    inferred = manifest["inferred"]
    assert manifest["config"]["vocab_size"] == 512
    assert inferred["output_width"] == 512
    assert inferred["seed"] == 42
    assert inferred["dtype"] == "fp32"
    assert inferred["expected_lr"]["source"] == "dry run of LambdaLR"
    assert inferred["expected_lr"]["steps"] == 60
    assert len(inferred["expected_lr"]["groups"]) == 2
    assert {"python", "steadyrun", "torch", "numpy", "pyarrow"} <= set(manifest["versions"])
    assert [group["settings"]["weight_decay"] for group in manifest["param_groups"]] == [0.1, 0.0]
    assert [group["dimensions"] for group in manifest["param_groups"]] == [[2], [1]]
    weights = {entry["name"]: entry for entry in manifest["initial_weights"]}
    up = weights["blocks.0.feed_forward.up.weight"]
    assert up["std"] == pytest.approx(0.02, rel=0.05)
    assert (up["fan_in"], up["module"], up["shape"]) == (128, "Linear", [512, 128])
    assert manifest["model"]["parameters"] == sum(int(np.prod(entry["shape"])) for entry in weights.values())
    assert len(manifest["tokenizer"]["fingerprint"]) == 64
    assert manifest["process"]["pid"] > 0


def test_tied_weights_are_one_parameter(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(30, 16), torch.nn.Linear(16, 30, bias=False))
    model[1].weight = model[0].weight
    with steadyrun.record(tmp_path, every=1) as run:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        run.watch(model, optimizer)
        loss = model(torch.arange(30)).logsumexp(-1).mean()
        loss.backward()
        optimizer.step()
        run.step(loss)
    manifest = steadyrun.open_run(tmp_path).manifest
    assert manifest["model"]["tied"] == [["0.weight", "1.weight"]]
    assert manifest["model"]["parameters"] == 480


def test_secrets_stay_out_of_the_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--lr", "3", "--api-key", "hunter2", "--hf_token=hunter3"])
    steadyrun.record(tmp_path).close()
    text = (tmp_path / "manifest.json").read_text()
    assert "hunter" not in text
    assert json.loads(text)["command_line"][:3] == ["train.py", "--lr", "3"]


def test_config_values_of_any_kind_are_kept(tmp_path: Path) -> None:
    config = {"path": tmp_path, "dtype": "bf16", "nested": {"a": (1, 2)}, "lr_max": np.float32(0.5), "f": print}
    steadyrun.record(tmp_path / "run", config=config).close()
    kept = steadyrun.open_run(tmp_path / "run").manifest["config"]
    assert kept["nested"] == {"a": [1, 2]}
    assert kept["lr_max"] == 0.5
    assert kept["path"] == str(tmp_path)


# -- the rest of a step ------------------------------------------------------------------------------


def test_cadence(tmp_path: Path) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with steadyrun.record(tmp_path, every={"activations": 7, "system": 0, "blocks": 30}) as run:
        run.watch(model, optimizer)
        for step in range(40):
            loss = loss_of(model, batch_of(step))
            loss.backward()
            optimizer.step()
            run.step(loss)
    view = steadyrun.open_run(tmp_path)
    assert view.series("activation/0").steps.tolist() == [0, 1, 2, 5, 7, 10, 14, 19, 21, 28, 35]
    assert view.series("block_param_norm/0").steps.tolist() == [0, 1, 2, 5, 10, 19, 30]
    assert "memory/process" not in view.names()


def test_flush_makes_everything_readable_now(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path) as run:
        for step in range(7):
            run.step(float(step), batch=torch.ones(2, 2))
        run.flush()
        assert values(tmp_path, "loss") == [0, 1, 2, 3, 4, 5, 6]
        assert len(values(tmp_path, "batch_hash")) == 7


def test_unwatch_takes_every_hook_off(tmp_path: Path) -> None:
    model = mlp()
    with steadyrun.record(tmp_path, every=1) as run:
        run.watch(model, torch.optim.SGD(model.parameters(), lr=0.1))
        run.unwatch()
        loss_of(model, batch_of(0)).backward()
        run.step(1.0)
        assert all(not p._post_accumulate_grad_hooks for p in model.parameters())
    assert steadyrun.open_run(tmp_path).names() == ["batch_index", "loss"]


def test_every_series_is_documented(tutor_run: Any) -> None:
    from steadyrun.store.series_catalogue import CATALOGUE, entry_for

    recorded = [*tutor_run(steps=60).names(), *tutor_run(steps=25, dtype="fp16").names()]
    assert [name for name in recorded if entry_for(name) is None] == []
    assert len({entry.pattern for entry in CATALOGUE}) == len(CATALOGUE)


def test_the_weights_of_the_beginning_stay_those_of_the_beginning(tmp_path: Path) -> None:
    """Neither watching again nor resuming takes trained weights for initial ones."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    def train(run: steadyrun.Run) -> None:
        for step in range(3):
            loss = loss_of(model, batch_of(step))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss)

    weights = []
    for _ in range(2):
        with steadyrun.record(tmp_path / "run") as run:
            run.watch(model, optimizer)
            weights.append(steadyrun.open_run(tmp_path / "run").manifest["initial_weights"])
            train(run)
            run.watch(model, optimizer)
            train(run)
            weights.append(steadyrun.open_run(tmp_path / "run").manifest["initial_weights"])
    assert weights == [weights[0]] * 4


def test_a_program_may_change_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with steadyrun.record("runs/mine") as run:
        for step in range(10):
            run.step(1.0 / (step + 1))
            monkeypatch.chdir(tmp_path / "elsewhere")
    view = steadyrun.open_run(tmp_path / "runs" / "mine")
    assert view.state == "finished"
    assert len(view.series("loss")) == 10
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_checkpoint_is_told(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path / "run") as run:
        run.step(1.0)
        run.checkpoint(tmp_path / "step-0.pt")
        run.checkpoint()
    checkpoints = [
        (event.step, event.fields["path"]) for event in steadyrun.open_run(tmp_path / "run").events("checkpoint")
    ]
    assert checkpoints == [(0, str(tmp_path / "step-0.pt")), (0, None)]
