"""Two real ranks in each framework: every rank records into one folder, and `check` gives one verdict."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import steadyrun

HERE = Path(__file__).parent
GRAVE = {"fault", "suspect"}


def train(framework: str, folder: Path) -> None:
    """Train on two ranks: Lightning starts its second process itself, torchrun starts those of the others."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
    words = [] if framework == "lightning" else [*launcher, "--master-port", port]
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, *words, str(HERE / "rank_programs.py"), framework, str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **({"MASTER_PORT": port} if not words else {})},
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("framework", ["accelerate", "lightning", "transformers"])
def test_every_rank_records_and_check_gives_one_verdict(tmp_path: Path, framework: str) -> None:
    train(framework, tmp_path)
    for name in ("healthy", "same-data"):
        assert not (tmp_path / f"{name}-2").exists()  # one folder for both ranks
        view = steadyrun.open_run(tmp_path / name)
        assert view.ranks == [0, 1]
        for rank in view.ranks:
            assert len(view.series("loss", rank)) == len(view.series("grad_norm", rank)) == 48
            (structure,) = {event.fields["parallelism"] for event in view.events("structure", rank)}
            assert structure == "ddp"
            assert view.events("loader", rank)[0].fields["shuffles"]
            assert view.events("probe-failed", rank) == []
    healthy = steadyrun.check(tmp_path / "healthy")
    assert not [asked.answer for asked in healthy.walk.path if asked.answer.kind in GRAVE]
    assert healthy.verdict == "healthy"
    passed = {asked.question.code for asked in healthy.walk.path if asked.answer.kind == "pass"}
    assert passed >= {"R1.1", "R1.2", "R2.1", "R2.3", "R4.1"}
    headline = steadyrun.check(tmp_path / "same-data").headline
    assert headline is not None
    assert (headline.question.code, headline.answer.outcome) == ("R2.1", "same")
    if framework == "accelerate":
        only_rank_0_logs(tmp_path / "logged")


def only_rank_0_logs(path: Path) -> None:
    """The usual use of a tracker: no finding, although one rank leaves no files."""
    assert steadyrun.open_run(path).ranks == [0]
    assert not [asked.answer for asked in steadyrun.check(path).walk.path if asked.answer.kind in GRAVE]
