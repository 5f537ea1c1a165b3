"""`steadyrun trial` in a terminal: its options, its exit codes, its errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from steadyrun.cli import app
from steadyrun.cli.trial import _seconds, _vary
from steadyrun.errors import UsageError

FACTORY = f"{Path(__file__).with_name('trial_programs.py')}:task"


def typed(*words: str) -> Result:
    return CliRunner().invoke(app, ["trial", *words])


def test_a_fault_is_shown_with_its_evidence_and_its_fix(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('{\n  "lr": 1.0,\n  "seed": 1\n}\n')
    found = typed(FACTORY, "--config", str(config), "--only", "rate,decay", "--steps", "32", "--on", "here", "--fix")
    assert found.exit_code == 1, found.output
    assert "✗ fault: With the learning rate divided by 10" in found.stdout  # or by 100: what is best depends on the CPU
    assert "fix: Divide the learning rate by 10" in found.stdout
    assert '-  "lr": 1.0,' in found.stdout
    assert '+  "lr": 0.' in found.stdout
    assert "not varied: dropout; label smoothing; " in found.stdout
    assert json.loads(config.read_text())["lr"] == 1.0  # a patch is printed, nothing is changed


def test_json_and_values_of_the_config() -> None:
    found = typed(FACTORY, "--vary", "lr=1e-3,3e-3", "--seeds", "2", "--steps", "16", "--on", "here", "--json")
    content = json.loads(found.stdout)
    assert {row["words"] for row in content["rows"]} == {"nothing changed", "lr = 0.001", "lr = 0.003"}
    assert content["noise"]["seeds"] == 2
    assert found.exit_code in (0, 3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "name the function that builds the program"),
        (("no_such_file.py:task",), "there is no such file"),
        ((FACTORY, "--budget", "soon"), "--budget must be a time such as 90s, 5m or 1h"),
        ((FACTORY, "--vary", "lr"), "--vary must look like lr=1e-4,3e-4"),
        ((FACTORY, "--only", "rotary"), "cannot be varied; this program has: rate"),
        (
            (FACTORY, "--only", "dropout"),
            "cannot be varied: the model has no active dropout; this program has: rate",
        ),
        ((FACTORY, "--on", "moon"), "unknown workers 'moon'"),
        ((FACTORY, "--checkpoint", "3"), "also give the run"),
        ((FACTORY, "--run", "nowhere"), "nowhere"),
        ((FACTORY, "--commits", "a-b"), "GOOD..BAD"),
    ],
)
def test_bad_input_says_what_is_wrong(words: tuple[str, ...], message: str) -> None:
    found = typed(*words)
    assert found.exit_code == 2
    assert message in " ".join(found.output.split())


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("5m", 300), ("1.5h", 5400)])
def test_a_budget_is_a_time(text: str, seconds: float) -> None:
    assert _seconds(text) == seconds


def test_values_are_json_or_text() -> None:
    assert _vary(["lr=1e-4,3e-4", "model.name=gpt,bert", "on=true,False", "widths=[1,2],[3]"]) == {
        "lr": [1e-4, 3e-4],
        "model.name": ["gpt", "bert"],
        "on": [True, False],
        "widths": [[1, 2], [3]],
    }
    with pytest.raises(UsageError):
        _vary(["=3"])


def test_ctrl_c_prints_what_is_known_and_keeps_it(tmp_path: Path) -> None:
    """The first twins have ended when their file is there."""
    scratch = tmp_path / "kept"
    words = [FACTORY, "--steps", "400", "--on", "here", "--only", "rate"]
    process = subprocess.Popen(
        [sys.executable, "-m", "steadyrun", "trial", *words],
        env=os.environ | {"STEADYRUN_SCRATCH": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while not list(scratch.glob("trials/*.jsonl")) and process.poll() is None:
        pass
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130, err
    assert "stopped with Ctrl-C" in out + err
    assert list(scratch.glob("trials/*.jsonl"))
