"""W&B's files, written by W&B in offline mode, imported and compared point by point."""

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import wandb
from imports import import_, imported, points, readable_or_told, runner

import steadyrun
from steadyrun.cli import app

REAL = Path(__file__).parents[3] / "shared" / "reallogs" / "nanogpt-char-overfit" / "run-mw8ngzqq.wandb"
STEPS = 1_500


def loss_at(step: int) -> float:
    return 4.0 * math.exp(-step / 300) + 0.5


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder `wandb/` with one run, longer than one block of the file, with a record longer than a block."""
    folder = tmp_path_factory.mktemp("wandb")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_SILENT", "true")
        patch.setenv("WANDB_CONSOLE", "off")
        config = {"lr": 0.25, "model": {"depth": 3}, "tags": ["a", "b"]}
        settings = wandb.Settings(x_disable_stats=True, x_disable_meta=True)
        run = wandb.init(mode="offline", project="p", name="my run", dir=folder, config=config, settings=settings)
        for step in range(STEPS):
            row: dict[str, Any] = {"train": {"loss": loss_at(step)}, "grad_norm": 1.0 + step % 7, "iter": 10 * step}
            if step % 100 == 0:
                row |= {"val/loss": loss_at(step) + 0.25, "text": "x" * (100_000 if step == 700 else 10)}
            if step in (5, 6, 7):
                row["odd"] = {5: math.nan, 6: math.inf, 7: -math.inf}[step]
            if step == 9:
                row["weights"] = wandb.Histogram([1, 2, 3])
            run.log(row)
        run.config.update({"late": 7})
        run.finish()
    return folder / "wandb"


def file_of(offline: Path) -> Path:
    (path,) = offline.glob("offline-run-*/run-*.wandb")
    return path


def test_every_point_of_an_offline_run(offline: Path, tmp_path: Path) -> None:
    (run,) = imported(offline, tmp_path)
    assert run["format"] == "wandb"
    assert Path(run["run"]).name == "my-run"
    assert run["roles"]["step"] == "iter"
    assert points(run["run"], "loss") == [(10 * step, loss_at(step)) for step in range(STEPS)]
    assert points(run["run"], "grad_norm") == [(10 * step, 1.0 + step % 7) for step in range(STEPS)]
    assert points(run["run"], "val_loss") == [(10 * step, loss_at(step) + 0.25) for step in range(0, STEPS, 100)]
    odd = points(run["run"], "odd")
    assert [step for step, _ in odd] == [50, 60, 70]
    assert math.isnan(odd[0][1])
    assert [value for _, value in odd[1:]] == [math.inf, -math.inf]
    assert steadyrun.open_run(run["run"]).series("loss").times[0] > 1.6e9
    assert run["odd"] == ["images, histograms, tables and the like (first: 'weights'): left out"]


def test_the_config_is_kept(offline: Path, tmp_path: Path) -> None:
    view = steadyrun.import_log(file_of(offline), tmp_path / "run")
    config = view.manifest["imported"]["config"]
    assert config["lr"] == 0.25
    assert config["model"] == {"depth": 3}
    assert config["late"] == 7
    assert "_wandb" not in config


def test_without_its_file_the_printed_log_is_imported(offline: Path, tmp_path: Path) -> None:
    folder = tmp_path / "offline-run-20260101_000000-abc"
    (folder / "files").mkdir(parents=True)
    lines = [f"iter {step}: loss {loss_at(step):.4f}, time 10.00ms, mfu 5.00%\n" for step in range(30)]
    (folder / "files" / "output.log").write_text("".join(lines))
    (run,) = imported(tmp_path, tmp_path / "out")
    assert run["format"] == "nanogpt"
    assert len(points(run["run"], "loss")) == 30
    shutil.copy(file_of(offline), folder / "run-abc.wandb")
    (run,) = imported(tmp_path / "offline-run-20260101_000000-abc", tmp_path / "out")
    assert run["format"] == "wandb"


def test_cut_off_anywhere(offline: Path, tmp_path: Path) -> None:
    data = file_of(offline).read_bytes()
    cut = tmp_path / "run-cut.wandb"
    found = []
    for size in [*range(1, 3_000, 331), *range(3_000, len(data), len(data) // 25)]:
        cut.write_bytes(data[:size])
        found.append(readable_or_told(cut, tmp_path / f"out-{size}"))
    assert found == sorted(found), "more of the file gives more points"
    assert found[0] == 0
    assert found[-1] > 1_000


def test_damage_costs_a_block_and_is_told(offline: Path, tmp_path: Path) -> None:
    data = bytearray(file_of(offline).read_bytes())
    data[40_000] ^= 0xFF
    damaged = tmp_path / "run-damaged.wandb"
    damaged.write_bytes(bytes(data))
    (run,) = imported(damaged, tmp_path / "out")
    assert STEPS * 0.8 < len(points(run["run"], "loss")) < STEPS
    assert any("cut off or damaged" in line and "byte " in line for line in run["odd"])


def test_no_file_of_wandb_names_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "run-x.wandb"
    path.write_bytes(b":W&B\xe1\xbe\x00" + b"nothing of use" * 20)
    done = import_(path)
    assert done.exit_code == 2
    assert "byte 7" in done.stderr


def test_dry_run_and_check(offline: Path) -> None:
    done = import_(offline, "--dry-run")
    assert done.exit_code == 0
    assert "train/loss" in done.stdout
    assert "my run" not in done.stdout
    done = runner.invoke(app, ["check", str(file_of(offline))])
    assert "is a log (Weights & Biases (.wandb))" in done.stderr
    assert "✓ the loss stays down" in done.stdout


@pytest.mark.skipif(not REAL.exists(), reason="the real logs of other projects are not here")
def test_a_real_run_of_somebody_else(tmp_path: Path) -> None:
    (run,) = imported(REAL, tmp_path)
    assert [step for step, _ in points(run["run"], "val_loss")] == list(range(0, 5_001, 250))
    assert min(points(run["run"], "val_loss"), key=lambda point: point[1])[0] == 1_750
    done = runner.invoke(app, ["check", run["run"]])
    assert "(C4.2, step 1750)" in done.stdout


def test_a_csv_export_holds_several_runs(tmp_path: Path) -> None:
    names = [f"{run} - {name}{end}" for run in ("a run", "b - c") for name in ("train/loss",)
             for end in ("", "__MIN", "__MAX")]  # fmt: skip
    rows = [",".join(f'"{name}"' for name in ["Step", *names])]
    for step in range(40):
        cells = [f'"{loss_at(step) + more}"' if step >= more else '""' for more in (0, 0, 0, 5, 5, 5)]
        rows.append(",".join([f'"{step}"', *cells]))
    (tmp_path / "export.csv").write_text("\n".join(rows) + "\n")
    first, second = imported(tmp_path / "export.csv", tmp_path / "out")
    assert (Path(first["run"]).name, Path(second["run"]).name) == ("a-run", "b---c")
    assert points(first["run"], "loss") == [(step, loss_at(step)) for step in range(40)]
    assert points(second["run"], "loss") == [(step, loss_at(step) + 5) for step in range(5, 40)]
