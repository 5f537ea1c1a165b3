"""`steadyrun run` on scripts that use a framework or a tracker: each is executed whole, with the real library."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import steadyrun

_HF = """
    import sys
    sys.path.insert(0, {here!r})
    import torch
    from tiny_hf import Texts, tiny_gpt
    from transformers import Trainer, TrainingArguments
    {extra}
    args = TrainingArguments("out", max_steps=30, per_device_train_batch_size=8, learning_rate=3e-3, logging_steps=5,
        eval_strategy="steps", eval_steps=10, report_to="none", use_cpu=True, save_strategy="no", disable_tqdm=True)
    trainer = Trainer(tiny_gpt(), args, train_dataset=Texts(), eval_dataset=Texts(64, seed=1), callbacks={callbacks})
    trainer.train()
    torch.save(trainer.model.state_dict(), sys.argv[1])
"""

_LIGHTNING = """
    import sys
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    import {package} as pl

    class Line(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
        def training_step(self, batch, number):
            loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
            self.log("train_loss", loss)
            return loss
        def validation_step(self, batch, number):
            self.log("val_loss", nn.functional.mse_loss(self.net(batch[0]), batch[1]))
        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.01)

    pl.seed_everything(1)
    x = torch.randn(256, 4)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), 16, shuffle=True)
    held_out = torch.randn(64, 4)
    validation = DataLoader(TensorDataset(held_out, held_out.sum(1, keepdim=True)), 16)
    quiet = dict(logger=False, enable_progress_bar=False, enable_model_summary=False)
    trainer = pl.Trainer(max_epochs=2, accelerator="cpu", **quiet)
    before = list(trainer.callbacks)
    model = Line()
    trainer.fit(model, loader, validation)
    assert trainer.callbacks == before
    saved = torch.load(trainer.checkpoint_callback.best_model_path, weights_only=False)
    assert "steadyrun" not in saved and saved["global_step"] == 32
    torch.save(model.state_dict(), sys.argv[1])
"""

_ACCELERATE = """
    import sys
    import torch
    from accelerate import Accelerator
    from accelerate.utils import set_seed
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    set_seed(1)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, log_with=[])
    accelerator.init_trackers("project")
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    x = torch.randn(512, 4)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), 16, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(2):
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(inputs), targets)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        with torch.no_grad():
            error = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        accelerator.log({{"eval_loss": error.item(), "accuracy": 0.5 + epoch / 4}})
    torch.save(accelerator.unwrap_model(model).state_dict(), sys.argv[1])
"""

_KERAS = """
    import sys
    import keras, numpy as np
    keras.utils.set_random_seed(1)
    x = np.random.default_rng(0).normal(size=(256, 4)).astype("float32")
    y = x.sum(1, keepdims=True)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.fit(x, y, 16, epochs=2, verbose=0, validation_data=(x[:64] + 0.1, y[:64]))
    import torch
    torch.save([torch.as_tensor(np.array(weight)) for weight in model.get_weights()], sys.argv[1])
"""

_TRACKERS = """
    import sys
    import mlflow, torch, wandb
    from torch.utils.tensorboard import SummaryWriter

    torch.manual_seed(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    writer, run = SummaryWriter("tb"), wandb.init(mode="offline", dir="w", settings=wandb.Settings(silent=True))
    mlflow.set_tracking_uri("file:mlruns")
    mlflow.start_run()
    for step in range(20):
        x = torch.randn(16, 4)
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        writer.add_scalar("Loss/train", loss, 100 * step)
        if step % 5 == 4:
            with torch.no_grad():
                x = torch.randn(64, 4)
                error = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
            wandb.log({{"val": {{"loss": error.item()}}}})
            mlflow.log_metric("accuracy", step / 20, step=7 * step)
            mlflow.log_metrics({{"reward": float(step)}})
    writer.close(); wandb.finish(); mlflow.end_run()
    torch.save(model.state_dict(), sys.argv[1])
"""


def launched(folder: Path, script: str, recorded: bool, **environment: str) -> subprocess.CompletedProcess[str]:
    """The script in a process of its own, with and without us."""
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(textwrap.dedent(script))
    ours = ["-m", "steadyrun", "run", "--dir", "run"] if recorded else []
    command = [sys.executable, *ours, "train.py", "model.pt"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MLFLOW_ALLOW_FILE_STORE": "true", **environment}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def both(tmp_path: Path, script: str, **environment: str) -> Any:
    """The run of a script whose trained weights are the same as without recording."""
    import torch

    launched(tmp_path / "with", script, True, **environment)
    launched(tmp_path / "without", script, False, **environment)
    ours, theirs = (torch.load(tmp_path / name / "model.pt") for name in ("with", "without"))
    pairs = (
        zip(ours.values(), theirs.values(), strict=True) if isinstance(ours, dict) else zip(ours, theirs, strict=True)
    )
    assert all(torch.equal(one, other) for one, other in pairs)
    assert not list((tmp_path / "with").glob("run-*"))
    return steadyrun.open_run(str(tmp_path / "with" / "run"))


def _tensors(saved: Any) -> list[Any]:
    return list(saved.values()) if isinstance(saved, dict) else list(saved)


def steps(run: Any, name: str) -> list[int]:
    return [int(step) for step in run.series(name).steps]


def test_hugging_face_trainer(tmp_path: Path) -> None:
    run = both(tmp_path, _HF.format(here=str(Path(__file__).parent), extra="", callbacks="None"))
    assert steps(run, "loss") == list(range(30))
    assert steps(run, "val_loss") == [9, 19, 29]
    assert run.manifest["config"]["lr_max"] == 3e-3
    assert "grad_norm" in run.names()


def test_a_callback_of_the_script_is_the_only_one(tmp_path: Path) -> None:
    extra = "from steadyrun.integrations.transformers import SteadyrunCallback"
    callbacks = 'SteadyrunCallback("own")'
    script = _HF.format(here=str(Path(__file__).parent), extra=extra, callbacks=f"[{callbacks}]")
    done = launched(tmp_path / "given", script, True)
    assert not (tmp_path / "given" / "run").exists()
    assert steps(steadyrun.open_run(str(tmp_path / "given" / "own")), "loss") == list(range(30))
    assert "own" in done.stderr


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_lightning(tmp_path: Path, package: str) -> None:
    run = both(tmp_path, _LIGHTNING.format(package=package))
    assert steps(run, "loss") == list(range(32))
    assert steps(run, "val_loss") == [15, 31]
    assert run.manifest["config"]["framework"] == "lightning"


def test_accelerate(tmp_path: Path) -> None:
    run = both(tmp_path, _ACCELERATE.format())
    assert steps(run, "loss") == list(range(32))
    assert steps(run, "val_loss") == [15, 31]
    assert list(run.series("accuracy").values) == [0.5, 0.75]
    assert set(run.series("backwards").values) == {2.0}


def test_keras(tmp_path: Path) -> None:
    run = both(tmp_path, _KERAS, KERAS_BACKEND="torch")
    assert steps(run, "loss") == list(range(32))
    assert steps(run, "val_loss") == [15, 31]


def test_trackers(tmp_path: Path) -> None:
    run = both(tmp_path, _TRACKERS.format(), WANDB_MODE="offline")
    assert steps(run, "loss") == list(range(20))
    assert list(run.series("printed_loss").values) == pytest.approx(list(run.series("loss").values))
    assert steps(run, "val_loss") == [4, 9, 14, 19]
    assert steps(run, "accuracy") == steps(run, "reward") == [4, 9, 14, 19]


_CELLS = [
    "%load_ext steadyrun",
    """
    import torch
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    """,
    """
    for step in range(30):
        x = torch.randn(16, 4)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("val_loss", loss.item())
    """,
    "%steadyrun",
    "%unload_ext steadyrun",
]


def test_a_notebook_in_a_kernel(tmp_path: Path) -> None:
    """Without a line of code but the extension's: a cell trains, and the report is shown as in a terminal."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(textwrap.dedent(cell)) for cell in _CELLS])  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    said = [output.text for output in outputs if output.get("name") == "stderr"]
    assert "".join(said) == "steadyrun: 30 steps recorded in experiments/notebook; %steadyrun shows the report\n"
    shown = [output.data for output in outputs if output.output_type == "execute_result"]
    assert len(shown) == 1
    assert "<steadyrun report of 'experiments/notebook'" in shown[0]["text/plain"]
    run = steadyrun.open_run(tmp_path / "experiments" / "notebook")
    assert run.last_step() == 29
    assert len(run.events("validation")) == 1
