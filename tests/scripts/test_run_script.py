"""`steadyrun run` on real scripts: what is found is what the script itself knows, and the script notices nothing."""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launching import PROGRAMS, launch

import steadyrun

LINES = 25


def test_a_plain_loop_is_found_and_is_bit_identical(tmp_path: Path) -> None:
    """Loss, gradient norm and rate are the script's own numbers; its output and its weights do not change."""
    recorded, alone = tmp_path / "recorded", tmp_path / "alone"
    recorded.mkdir()
    alone.mkdir()
    words = ["plain.py", "--epochs", "4", "--dir", "w.pt", "--model=large"]
    ours = launch(recorded, "--declare", "lr_max=0.01", *words)
    theirs = launch(alone, *words, recorded=False)
    assert (ours.code, ours.out) == (0, theirs.out)
    assert theirs.err == ""
    assert (recorded / "w.pt").read_bytes() == (alone / "w.pt").read_bytes()

    run = ours.run("plain")
    for name, series in (("loss", "loss"), ("grad_norm", "grad_norm"), ("lr", "lr/0")):
        np.testing.assert_allclose(run.series(series).values, ours.column(name), rtol=1e-6, err_msg=name)
    assert run.manifest["config"] == {"lr_max": 0.01}
    assert run.manifest["recorded_by"] == "steadyrun run"
    assert run.manifest["model"]["class"] == "Sequential"
    assert run.manifest["inferred"]["seed"] == 3
    assert run.manifest["inferred"]["expected_lr"]["source"] == "dry run of CosineAnnealingLR"
    assert run.manifest["loaders"][0]["batch_size"] == 16
    assert run.manifest["command_line"][1:] == words[1:]
    assert [event.fields["path"] for event in run.events("checkpoint")] == ["w.pt"]
    assert set(run.series("clip_threshold").values) == {1.0}
    lines = ours.err.splitlines()
    assert len(lines) <= LINES
    assert "experiments/plain" in lines[0]
    assert any(line.startswith("dashboard: ") for line in lines)


@pytest.mark.parametrize(
    ("script", "names"),
    [
        ("accumulation", ["loss"]),
        ("gan", ["loss", "loss_netG", "loss_netD"]),
        ("closure", ["loss"]),
        ("parted", ["loss"]),
        ("scaler", ["loss", "skipped"]),
    ],
)
def test_the_loss_of_a_step(tmp_path: Path, script: str, names: list[str]) -> None:
    """Micro-batches, several optimizers, one inside another, a closure that is called often, a skipped step."""
    done = launch(tmp_path, f"{script}.py")
    assert done.code == 0, done.err
    assert done.runs() == [script]
    for name in names:
        np.testing.assert_allclose(done.series(name, script), done.column(name), rtol=1e-5, err_msg=name)
    assert "no longer recorded" not in done.err
    if script == "gan":
        parts = {module["path"].split(".")[0] for module in done.run("gan").manifest["model"]["modules"]}
        assert parts == {"netG", "netD"}
        assert {0.001, 0.002} == {*done.series("lr/0", "gan"), *done.series("lr/1", "gan")}
        assert "C6.3" not in done.err
    if script == "parted":
        assert set(done.series("optimizer_steps", script)) == {1.0}
        assert "A4.1" not in done.err
    if script == "scaler":
        assert done.column("skipped").count(1.0) == 1
        assert done.series("loss_scale", script)[0] == 256.0


def test_trainings_one_after_the_other_are_runs_of_their_own(tmp_path: Path) -> None:
    done = launch(tmp_path, "folds.py")
    assert done.runs() == ["folds", "folds-2"]
    for fold, name in ((1, "folds"), (2, "folds-2")):
        losses = [row["loss"] for row in done.numbers if row["fold"] == fold]
        np.testing.assert_allclose(done.series("loss", name), losses, rtol=1e-6)
        modules = [module["path"] for module in done.run(name).manifest["model"]["modules"]]
        assert modules == ["encoder", "decoder"]
    assert "the script trained 2 times" in done.err


def test_children_do_not_record_and_the_exit_code_is_the_scripts(tmp_path: Path) -> None:
    """Loader workers, forked and spawned processes, a child that leaves through the end of the script, stdin."""
    done = launch(tmp_path, "children.py", stdin="a line\n")
    assert done.code == 3
    assert "read a line" in done.out
    assert "fork 0" in done.out
    assert "spawn 0" in done.out
    assert "forked to the end" in done.out
    assert done.runs() == ["children"]
    np.testing.assert_allclose(done.series("loss", "children"), done.column("loss"), rtol=1e-6)
    assert done.err.count("experiments/children  ended early") == 1
    assert done.err.count("dashboard: ") == 1


def test_the_scripts_own_record_is_the_only_one(tmp_path: Path) -> None:
    done = launch(tmp_path, "own_record.py")
    assert done.code == 0, done.err
    assert done.runs() == ["mine"]
    np.testing.assert_allclose(done.series("loss", "mine"), done.column("loss"), rtol=1e-6)
    assert "experiments/mine" in done.err


def test_an_exception_looks_as_without_us(tmp_path: Path) -> None:
    ours = launch(tmp_path, "broken.py", "raise")
    theirs = launch(tmp_path, "broken.py", "raise", recorded=False)
    assert ours.code == theirs.code == 1
    assert ours.err.startswith(theirs.err)
    assert "Traceback" in theirs.err
    assert ours.run("broken").manifest["failure"]["message"] == "after training"


def test_ctrl_c_ends_the_process_by_the_signal(tmp_path: Path) -> None:
    done = launch(tmp_path, "broken.py", "interrupt")
    assert done.code == -signal.SIGINT
    assert done.err.count("KeyboardInterrupt") == 1
    assert "experiments/broken  ended early, last step 24" in done.err
    assert done.run("broken").last_step() == 24


def test_a_script_that_does_not_train(tmp_path: Path) -> None:
    """One line, and no folder; a failure before training; standard Python with STEADYRUN=off."""
    never = launch(tmp_path, "broken.py", "never")
    assert never.code == 0
    assert never.err.count("\n") == 1
    assert "made no optimizer step" in never.err
    early = launch(tmp_path, "broken.py", "early")
    assert early.code == 1
    assert early.err.splitlines()[-1].endswith("nothing is recorded")
    first = launch(tmp_path, "broken.py", "first")
    assert first.code == 1
    assert first.err.count("steadyrun: ") == 1
    assert first.err.splitlines()[-1].endswith("nothing is recorded")
    off = launch(tmp_path, "broken.py", "hook", STEADYRUN="off")
    assert (off.code, off.out, off.err) == (1, "own hook: RuntimeError after training\n", "")
    assert not (tmp_path / "experiments").exists()


def test_a_module_and_a_child_that_does_the_work(tmp_path: Path) -> None:
    """`-m package.train` as Python runs it; a launcher that trains in another process gets one line."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "start.py").write_text(
        "import subprocess, sys\n"
        "assert __spec__.name == 'package.start' and __package__ == 'package'\n"
        "print(sys.argv, sys.path[0], sys.excepthook is sys.__excepthook__)\n"
        "subprocess.run([sys.executable, '-c', 'import time\\nwhile time.process_time() < 1.5: pass'], check=True)\n"
    )
    ours = launch(tmp_path, "-m", "package.start", "--its", "own")
    theirs = launch(tmp_path, "-m", "package.start", "--its", "own", recorded=False)
    assert (ours.code, ours.out) == (0, theirs.out)
    assert "did its work in child processes" in ours.err


def test_an_incident_is_replayed_with_a_factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report names the cause and the command; with the function it names, replay is bit-equal."""
    done = launch(tmp_path, "bad_batch.py")
    assert done.code == 0
    assert "A5.5" in done.err
    assert "--factory FILE.py:FUNCTION" in done.err.splitlines()[-1]
    monkeypatch.syspath_prepend(str(PROGRAMS))
    replayed = steadyrun.replay(tmp_path / "experiments" / "bad_batch", f"{PROGRAMS / 'bad_batch.py'}:task")
    assert "bit-equal to the recording" in str(replayed)
    assert "row 0 of the batch" in str(replayed)


def launch_two(folder: Path, script: str) -> Any:
    """Both ranks under torchrun."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(port))
    return launch(folder, script, recorded=False, program=(*launcher, "-m", "steadyrun", "run"))


def test_every_rank_records_into_one_folder(tmp_path: Path) -> None:
    done = launch_two(tmp_path, "ranks.py")
    assert done.code == 0, done.err
    assert done.runs() == ["ranks"]
    for rank in (0, 1):
        losses = [row["loss"] for row in done.numbers if row["rank"] == rank]
        np.testing.assert_allclose(done.run("ranks").series("loss", rank=rank).values, losses, rtol=1e-6)
    assert done.err.count("dashboard: ") == 1


def test_a_rank_that_fails_before_its_first_step_is_named(tmp_path: Path) -> None:
    done = launch_two(tmp_path, "early_end.py")
    assert done.code == 1
    assert "could not be recorded" not in done.err
    headline = steadyrun.check(tmp_path / "experiments" / "early_end", everything=True).headline
    assert headline is not None
    assert headline.answer.ranks == (1,)
    assert "Rank 1 failed at step 0" in headline.answer.message
    assert "ValueError: a column is missing" in headline.answer.message


def test_help_and_wrong_use(tmp_path: Path) -> None:
    missing = launch(tmp_path, "nowhere.py")
    assert missing.code == 2
    assert "does not exist" in missing.err
    wrong = launch(tmp_path, "--declare", "lr_max=high", "plain.py")
    assert wrong.code == 2
    assert "lr_max must be a number" in wrong.err


def test_what_is_no_script_fails_with_the_next_step(tmp_path: Path) -> None:
    """Nothing runs: a notebook, a shell script, a launcher, python itself, a file after -m, a folder that is a file."""
    (tmp_path / "book.ipynb").write_text('{"cells": []}')
    (tmp_path / "train.py").write_text("print('ran')")
    (tmp_path / "job.sh").write_text("python train.py\n")
    (tmp_path / "job").write_text("#!/usr/bin/env bash\npython train.py\n")
    for words, answer in {
        ("book.ipynb",): "%load_ext steadyrun",
        ("job.sh",): "is a shell script",
        ("job",): "is a shell script",
        ("python", "train.py", "--width", "3"): "run train.py --width 3",
        ("sh", "train.py"): "-m steadyrun run train.py",
        ("-m", "train.py"): "leave out -m",
        ("--dir", "job.sh/run", "plain.py"): "job.sh is a file",
        ("--declare", "lr_max", "plain.py"): "--declare lr_max=3e-4",
    }.items():
        done = launch(tmp_path, *words)
        assert (done.code, done.out) == (2, ""), words
        assert answer in done.err
        assert done.err.startswith("error: ")
    assert not (tmp_path / "experiments").exists()


def test_what_the_script_cannot_use_is_said_in_a_line(tmp_path: Path) -> None:
    """Our options after the script, which refuses them; a name that is never compared; a model that is not there."""
    late = launch(tmp_path, "strict.py", "--dir", "here")
    assert late.code == 2
    assert late.err.splitlines()[-1].endswith("--dir of steadyrun comes before the script. Nothing is recorded")
    odd = launch(tmp_path, "--declare", "lr_mx=3", "--model", "nowhere", "strict.py")
    assert odd.code == 0
    assert "--declare lr_mx: nothing is compared with it; did you mean lr_max?" in odd.err
    assert "--model nowhere: no module of that name" in odd.err
