"""`steadyrun replay` as people type it."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import steadyrun
from steadyrun.cli import app


def replay(*words: object) -> Result:
    """Without the experiments, which other tests run."""
    return CliRunner().invoke(app, ["replay", "--no-experiments", *map(str, words)])


@pytest.fixture
def run(tmp_path: Path, tutor_run: Callable[..., steadyrun.RunView]) -> Path:
    """A copy: a replay leaves its result in the run."""
    return Path(shutil.copytree(tutor_run("log-of-zero", steps=120).root, tmp_path / "log-of-zero"))


def test_the_story_for_a_person(run: Path) -> None:
    result = replay(run)
    assert result.exit_code == 0
    assert "bit-equal to the recording" in result.stdout
    assert "Culprit: " in result.stdout
    assert "Fix: " in result.stdout
    assert "Measurements of every step: " in result.stdout


def test_json(run: Path) -> None:
    result = replay(run, "--json")
    told = json.loads(result.stdout)
    assert result.exit_code == 0
    assert told["schema"] == 1
    assert told["proof"]["verdict"] == "bit-equal"
    assert told["culprit"]["stage"] in {"loss", "forward"}
    assert told["precision"]["outcome"] == "structural"
    assert told["steps"][-1]["loss"] in {"nan", "inf"}
    assert told["token_losses"] is None or told["token_losses"]["count"] > 0
    folder = Path(told["incident"]["folder"])
    assert json.loads((folder / "replay.json").read_text())["culprit"] == told["culprit"]
    measured = steadyrun.open_run(told["measurements"])
    every_step = [step["step"] for step in told["steps"]]
    assert measured.series("update_ratio/model.blocks.0").steps.tolist() == every_step
    assert measured.series("activation/model.blocks.0").steps.tolist() == every_step


@pytest.mark.slow
def test_a_second_replay_replaces_the_first(run: Path) -> None:
    assert replay(run).exit_code == 0
    assert replay(run).exit_code == 0


def test_the_list(run: Path) -> None:
    result = replay(run, "--list")
    assert result.exit_code == 0
    assert "non-finite" in result.stdout


def test_export(run: Path, tmp_path: Path) -> None:
    result = replay(run, "--export", tmp_path / "repro")
    assert result.exit_code == 0, result.stderr
    assert "verified in a fresh process" in result.stderr
    assert (tmp_path / "repro/repro.py").is_file()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--step", "7"], "no incident at step 7"),
        (["--factory", "nowhere:task"], "no module named 'nowhere'"),
        (["--factory", "json:nothing"], "has no function 'nothing'"),
        (["--factory", "json:loads"], "loads raised TypeError"),
    ],
)
def test_bad_input(run: Path, words: list[str], told: str) -> None:
    result = replay(run, *words)
    assert result.exit_code == 2
    assert told in result.stderr
    assert "Traceback" not in result.stderr


def test_no_run_and_no_incidents(tmp_path: Path, tutor_run: Callable[..., steadyrun.RunView]) -> None:
    result = replay(tmp_path / "nothing")
    assert result.exit_code == 2
    with steadyrun.record(tmp_path / "plain") as run:
        run.log(loss=1.0)
    result = replay(tmp_path / "plain")
    assert result.exit_code == 2
    assert "has no incidents" in result.stderr


@pytest.mark.parametrize("name", ["incident.json", "checkpoint.safetensors", "checkpoint.json"])
def test_a_damaged_incident(run: Path, name: str) -> None:
    (folder,) = [path for path in (run / "incidents").glob("step-*") if (path / "incident.json").is_file()][:1]
    target = folder / name
    target.write_bytes(target.read_bytes()[: target.stat().st_size // 2])
    result = replay(run)
    assert result.exit_code == 2
    assert name in result.stderr
    assert "Traceback" not in result.stderr


def test_hostile_words_in_an_incident_are_only_shown(run: Path) -> None:
    for path in (run / "incidents").glob("step-*/incident.json"):
        content = json.loads(path.read_text())
        content["why"] = "\x1b[2J[red]boo[/red]"
        path.write_text(json.dumps(content))
    result = replay(run)
    assert "\x1b[2J" not in result.stdout
    assert "[red]boo[/red]" in result.stdout


SCRIPT = """
import argparse
import torch
from torch import nn
import steadyrun

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, required=True)
parser.add_argument("--out", default="mine")
args = parser.parse_args()
print("a width of", args.width)

def loss_fn(model, batch):
    return nn.functional.cross_entropy(model(batch["x"]), batch["y"])

def task(config):
    model = nn.Linear(args.width, 3)
    return steadyrun.Task(model, torch.optim.SGD(model.parameters(), 0.1), loss_fn)

if __name__ == "__main__":
    torch.manual_seed(0)
    made = task({})
    with steadyrun.record(args.out) as run:
        run.watch(made.model, made.optimizer, loss_fn=loss_fn)
        for step in range(12):
            batch = {"x": torch.randn(8, args.width), "y": torch.arange(8) % 3}
            batch["x"][0] += float("nan") if step == 9 else 0.0
            loss = loss_fn(made.model, batch)
            loss.backward()
            made.optimizer.step()
            made.optimizer.zero_grad()
            run.step(loss, batch=batch)
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A script that parses its command line at import, and its run."""
    folder = tmp_path_factory.mktemp("parsing")
    (folder / "parsing.py").write_text(SCRIPT)
    subprocess.run([sys.executable, "parsing.py", "--width", "5"], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def script(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(shutil.copytree(recorded, tmp_path / "parsing"))
    return "parsing.py:task"


def test_arguments_after_two_dashes_are_the_scripts_own(script: str) -> None:
    before = list(sys.argv)
    result = replay("mine", "--factory", script, "--json", "--", "--width", 5)
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["proof"]["verdict"] == "bit-equal"
    assert "a width of 5" in result.stderr
    assert sys.argv == before


def test_processes_that_share_experiments_pass_the_arguments_on(script: str) -> None:
    words = ["replay", "mine", "--factory", script, "--all", "--jobs", "2", "--json", "--", "--width", "5"]
    done = subprocess.run([sys.executable, "-m", "steadyrun", *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["experiments"]["table"]) > 1


@pytest.mark.slow
def test_an_exported_script_has_the_arguments(script: str) -> None:
    result = replay("mine", "--factory", script, "--export", "repro", "--", "--width", "5")
    assert result.exit_code == 0, result.stderr
    assert subprocess.run([sys.executable, "repro/repro.py"], capture_output=True).returncode == 0


@pytest.mark.parametrize(
    ("words", "printed", "given"),
    [
        ([], "error: the following arguments are required: --width", "its arguments: none"),
        (["--", "--wide", "5"], "error: the following arguments are required: --width", "its arguments: --wide 5"),
        (["--", "--help"], "usage: parsing.py", "exited with status 0"),
    ],
)
def test_a_script_that_rejects_its_command_line(script: str, words: list[str], printed: str, given: str) -> None:
    before = list(sys.argv)
    result = replay("mine", "--factory", script, *words)
    assert result.exit_code == 2
    assert printed in result.stderr
    assert f"importing {script.partition(':')[0]} exited with status" in result.stderr
    assert given in result.stderr
    assert "FILE.py:FUNCTION -- --data PATH" in result.stderr
    assert "unrecognized arguments: replay" not in result.stderr
    assert sys.argv == before


def test_arguments_without_a_factory_and_a_second_run_are_refused(script: str) -> None:
    assert "add --factory FILE.py:FUNCTION" in replay("mine", "--", "--width", "5").stderr
    result = replay("mine", "other", "--factory", script)
    assert result.exit_code == 2
    assert "unexpected extra argument" in result.stderr
