"""`steadyrun replay` as people type it."""

import json
import shutil
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
    assert "bit-equal to the recorded ones" in result.stdout
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
    assert "checked in a fresh process" in result.stderr
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
