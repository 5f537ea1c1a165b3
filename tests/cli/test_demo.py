"""`steadyrun demo` as a person types it."""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import steadyrun
from steadyrun.cli import app

runner = CliRunner()


def demo(*arguments: str) -> Any:
    return runner.invoke(app, ["demo", *arguments])


def recorded_steps(run: Path) -> int:
    if not (run / "manifest.json").exists():
        return 0
    view = steadyrun.open_run(run)
    return len(view.series("loss").steps) if "loss" in view.names() else 0


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_short_run_leaves_a_run_directory_and_a_summary() -> None:
    result = demo("--steps", "20")
    assert result.exit_code == 0, result.output
    assert "healthy: 20 steps in " in result.stdout
    assert "n-gram baseline 1." in result.stdout
    assert "run directory    experiments/healthy (" in result.stdout
    assert "steadyrun demo rare-token-spike" in result.stdout
    assert "20/20" in result.stderr
    assert "20/20" not in result.stdout
    view = steadyrun.open_run("experiments/healthy")
    assert view.manifest["config"]["total_steps"] == 20
    assert view.manifest["config"]["warmup_steps"] == 4
    assert list(view.series("loss").steps) == list(range(20))
    assert f"({len(view.names())} series)" in result.stdout


def test_the_summary_names_commands_that_work() -> None:
    result = demo("--steps", "2")
    commands = result.stdout.split("Next:\n")[1].splitlines()
    assert len(commands) == 4
    assert commands[0].endswith(" check experiments/healthy")
    assert commands[1].endswith(" dashboard experiments/healthy --open")
    # The last one trains for half a minute, and opening a browser is not for tests.
    for command in (commands[0], commands[1].removesuffix("--open"), commands[2]):
        done = subprocess.run(command, shell=True, capture_output=True, check=False)
        assert done.returncode != 2, done.stderr
        assert done.stdout


@pytest.mark.parametrize("on_path", [True, False])
def test_commands_are_shown_as_one_would_type_them(on_path: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = str(Path(sys.executable).parent)
    others = [folder for folder in os.environ["PATH"].split(os.pathsep) if folder != programs]
    monkeypatch.setenv("PATH", os.pathsep.join([programs, *others] if on_path else others))
    commands = demo("--steps", "2").stdout.split("Next:\n")[1].splitlines()
    assert (commands[2] == "  steadyrun demo --list") == on_path
    assert commands[2].endswith("steadyrun demo --list")


def test_a_taken_name_gets_a_number() -> None:
    for expected in ("no-warmup", "no-warmup-2", "no-warmup-3"):
        assert demo("no-warmup", "--steps", "1").exit_code == 0
        assert Path("experiments", expected, "manifest.json").is_file()


def test_out_and_seed() -> None:
    assert demo("bad-init", "--steps", "2", "--seed", "7", "--out", "deep/here").exit_code == 0
    assert steadyrun.open_run("deep/here").manifest["config"]["seed"] == 7
    assert not Path("experiments").exists()


def test_an_empty_out_is_used() -> None:
    Path("mine").mkdir()
    assert demo("--steps", "1", "--out", "mine").exit_code == 0


def test_force_replaces_a_run() -> None:
    assert demo("--steps", "3", "--out", "mine").exit_code == 0
    refused = demo("--steps", "2", "--out", "mine")
    assert refused.exit_code == 2
    assert "mine is not empty" in refused.stderr
    assert "--force" in refused.stderr
    assert demo("--steps", "2", "--out", "mine", "--force").exit_code == 0
    assert len(steadyrun.open_run("mine").series("loss").steps) == 2


@pytest.mark.parametrize("manifest", [None, "{}", "[]", "not json", '{"name": "a web app"}'])
def test_force_replaces_nothing_but_runs(manifest: str | None) -> None:
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("years of work")
    if manifest is not None:
        Path("mine/manifest.json").write_text(manifest)
    result = demo("--steps", "1", "--out", "mine", "--force")
    assert result.exit_code == 2
    assert "not a steadyrun run directory" in result.stderr
    assert Path("mine/thesis.txt").read_text() == "years of work"


def test_force_does_not_follow_a_link() -> None:
    Path("real").mkdir()
    Path("real/manifest.json").write_text(json.dumps({"schema": 1}))
    Path("link").symlink_to("real")
    assert demo("--steps", "1", "--out", "link", "--force").exit_code == 2
    assert Path("real/manifest.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "problem", "remedy"),
    [
        (["sabotage"], "unknown fault 'sabotage'; choose one of: healthy, bad-init", "steadyrun demo --list"),
        (["--steps", "0"], "steps must be at least 1, got 0", "steadyrun demo --help"),
        (["--seed", "-1"], "seed must be between", "steadyrun demo --help"),
        (["--out", "file"], "cannot create file", "--out"),
        (["--out", "file/below"], "cannot create file/below", "--out"),
    ],
    ids=str,
)
def test_bad_input_is_one_clear_error(arguments: list[str], problem: str, remedy: str) -> None:
    Path("file").write_text("")
    result = demo(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert f"error: {problem}" in result.stderr
    assert remedy in result.stderr
    assert "Traceback" not in result.stderr
    assert not Path("experiments").exists()


def test_a_word_where_a_number_belongs() -> None:
    result = demo("--steps", "many")
    assert result.exit_code == 2
    assert "--steps" in result.stderr


def test_markup_in_a_name_is_shown_as_it_is() -> None:
    assert "unknown fault '[red]x[/red]'" in demo("[red]x[/red]").stderr


def test_list_goes_to_stdout() -> None:
    result = demo("--list")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()[:4]] == [
        "healthy",
        "bad-init",
        "no-warmup",
        "broken-mask",
    ]
    assert result.stderr == ""


def test_list_has_columns_for_name_leaf_and_summary() -> None:
    printed = demo("--list").stdout.splitlines()
    titles = ("Fine-tuning and policies", "Several processes (--ranks 2)")
    lines = [line for line in printed if line and line not in titles]
    assert len(printed) - len(lines) == 4
    rows = [re.split(r" {2,}", line) for line in lines]
    assert ["healthy", "-", "the healthy reference run"] in rows
    assert ["bad-init", "C5.1", "initial weights are 100 times too large"] in rows
    assert all(len(row) == 3 for row in rows)
    assert len({line.index(summary) for line, (_, _, summary) in zip(lines, rows, strict=True)}) == 1


@pytest.mark.parametrize("missing", ["torch", "tokenizers"])
def test_without_the_extra_the_error_names_it(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def without(name: str, package: str | None = None) -> Any:
        if name == missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    result = demo()
    assert result.exit_code == 2
    assert f"needs {missing}" in result.stderr
    assert 'pip install "steadyrun[tutor]"' in result.stderr


def test_ctrl_c_closes_the_run(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", "from steadyrun.cli import main; main()", "demo", "--steps", "100000"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    run = tmp_path / "experiments" / "healthy"
    while process.poll() is None and not recorded_steps(run):
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate(timeout=300)
    assert process.returncode == 130, messages
    assert "stopped with Ctrl-C; the recording so far is in experiments/healthy" in messages
    assert "Traceback" not in messages
    assert recorded_steps(run) > 0
    assert steadyrun.open_run(run).manifest["state"] != "running"


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[1;31m" not in demo("sabotage").stderr
