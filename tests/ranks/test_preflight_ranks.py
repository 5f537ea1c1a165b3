"""Preflight on two real ranks over gloo: healthy programs pass, and each mistake is named."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from preflight_programs import BROKEN, HEALTHY

pytestmark = pytest.mark.long

HERE = Path(__file__).parent


def launch(*words: str) -> subprocess.CompletedProcess[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
    return subprocess.run(
        [sys.executable, *launcher, "--master-port", str(port), *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=HERE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def test_healthy_programs_pass_and_each_mistake_is_named(tmp_path: Path) -> None:
    """All programs in one process group: a launch takes seconds, a program a fraction of one."""
    path = tmp_path / "answers.json"
    done = launch(str(HERE / "preflight_all.py"), str(path))
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(path.read_text())
    for name, found in answers.items():
        assert found["untouched"] == [True, True], name
        assert len(set(found["verdicts"])) == 1, name
    healthy_ones_pass(answers)
    assert {name: answers[name]["headline"] for name in BROKEN} == {name: code for name, (_, code) in BROKEN.items()}
    assert "0.8 of rank 0, 0.2 of rank 1" in answers["mean of means"]["evidence"]
    assert "is 2 times that of one process" in answers["summed by hand"]["evidence"]
    assert "read 192 examples, 96 of them different" in answers["no sampler"]["evidence"]


def healthy_ones_pass(answers: dict[str, Any]) -> None:
    for name in HEALTHY:
        assert not {"fault", "suspect"} & set(answers[name]["answers"].values()), answers[name]
        assert answers[name]["verdict"] == ("cannot-tell" if name == "contrastive" else "healthy"), answers[name]
    of_ddp = answers["ddp"]["answers"]
    assert {code for code, kind in of_ddp.items() if kind == "pass"} == {"R1.1", "R1.2", "R2.1", "R5.1", "R5.2"}
    assert {answers["fsdp, clipped"]["answers"][code] for code in ("R1.5", "R1.6", "R5.1")} == {"pass"}
    assert {answers["tensor parallel"]["answers"][code] for code in ("R1.1", "R1.6", "R2.1")} == {"pass"}


@pytest.mark.parametrize("function", ["healthy", "made_by_the_script"])
def test_rank_0_prints_one_report(function: str) -> None:
    done = launch("-m", "steadyrun", "preflight", f"preflight_factories.py:{function}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"healthy  preflight_factories.py:{function}  before training, on 2 ranks") == 1


@pytest.mark.slow
def test_a_fault_is_printed_once_and_every_rank_exits_with_1() -> None:
    done = launch("-m", "steadyrun", "preflight", "--json", "preflight_factories.py:same_data")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert (report["headline"]["code"], report["headline"]["outcome"]) == ("R2.1", "same")
    assert "exitcode: 1" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "line"),
    [
        ("fails_on_one_rank", "error: rank 1: loss_fn raised IndexError: row 9 of 8 (preflight_factories.py:"),
        ("stalls_on_one_rank", "error: rank 1: has not finished building the task after 8 s; it executes"),
    ],
)
def test_a_rank_that_fails_ends_all_with_its_number(function: str, line: str) -> None:
    done = launch("-m", "steadyrun", "preflight", "--timeout", "8", f"preflight_factories.py:{function}")
    assert line in done.stderr
    assert "exitcode: 2" in done.stderr
    assert done.stdout == ""
