"""`steadyrun check` as a person types it, on real runs of the tutor."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from samples import few_questions, only
from terminal import PROGRAM, in_terminal
from typer.testing import CliRunner

import steadyrun
from steadyrun.cli import app
from steadyrun.trees import QUESTIONS

runner = CliRunner()


def check(*arguments: str) -> Any:
    return runner.invoke(app, ["check", *arguments])


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


@pytest.fixture(autouse=True)
def _two_runs(tmp_path: Path, tutor_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`healthy` and `bad-init` in the working directory, to be written into."""
    for fault in ("healthy", "bad-init"):
        shutil.copytree(tutor_run(fault, steps=60).root, tmp_path / fault)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def _few() -> Iterator[None]:
    with only(few_questions()):
        yield


@pytest.mark.usefixtures("_few")
def test_a_healthy_run() -> None:
    result = check("healthy")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("✓ healthy  healthy  finished, last step 59\nNo fault found.\n")
    assert result.stderr == ""
    assert "the walk\n├── ✓ C1.1 first loss, pass: loss 6." in check("healthy", "--verbose").stdout


@pytest.mark.usefixtures("_few")
def test_a_fault() -> None:
    result = check("bad-init")
    assert result.exit_code == 1, result.output
    assert "✗ it is broken (C1.1, step 0)\n" in result.stdout
    assert "fix: Mend it." in result.stdout
    assert "4 questions not asked" in check("bad-init", "--verbose").stdout
    assert "steadyrun check NEW_RUN --after bad-init\n" in result.stdout
    assert result.stderr == ""


def test_cannot_tell() -> None:
    with only(few_questions(missing=True)):
        result = check("healthy")
    assert result.exit_code == 3
    assert "\nNo fault found, but not answered: D4.1.\n" in result.stdout
    assert "record sunshine (D4.1)" in result.stdout


def test_the_real_questions_find_the_fault_and_python_says_the_same() -> None:
    result = check("bad-init", "--json")
    assert result.exit_code == 1, result.output
    found = json.loads(result.stdout, parse_constant=no_constant)
    assert found["verdict"] == "fault"
    assert found["leaf"]["code"].startswith("C")
    assert steadyrun.check("bad-init").to_dict() == found
    assert str(steadyrun.check("bad-init")).startswith("✗ fault  bad-init  finished, last step 59  1 incident\n")


@pytest.mark.usefixtures("_few")
def test_all_goes_on() -> None:
    found = json.loads(check("bad-init", "--all", "--json").stdout)
    assert [entry["code"] for entry in found["walk"]] == list(QUESTIONS)
    assert found["leaf"]["code"] == "C1.1"


@pytest.mark.usefixtures("_few")
def test_json_is_also_left_in_the_run_directory() -> None:
    result = check("bad-init", "--json")
    assert Path("bad-init/report.json").read_text() == result.stdout
    assert check("healthy").exit_code == 0
    assert json.loads(Path("healthy/report.json").read_text())["verdict"] == "healthy"


@pytest.mark.usefixtures("_few")
def test_a_run_that_cannot_be_written_to_is_still_checked() -> None:
    Path("bad-init/report.json/in the way").mkdir(parents=True)
    result = check("bad-init", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["verdict"] == "fault"
    assert "could not write bad-init/report.json: Is a directory" in result.stderr
    assert not list(Path("bad-init").glob("*.tmp"))


@pytest.mark.usefixtures("_few")
def test_junit_and_markdown() -> None:
    suite = ElementTree.fromstring(check("bad-init", "--junit").stdout)[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("5", "1", "4")
    assert check("bad-init", "--markdown").stdout.startswith("### ✗ fault: `bad-init`\n")


@pytest.mark.usefixtures("_few")
def test_after_says_what_a_fix_did() -> None:
    result = check("healthy", "--after", "bad-init")
    assert result.exit_code == 0
    assert "compared with bad-init\n  ✓ gone: C1.1 first loss, broken (now pass)\n" in result.stdout
    found = json.loads(check("bad-init", "--after", "healthy", "--json").stdout)
    assert found["after"]["leaf_gone"] is None
    assert found["after"]["leaf_came"]["code"] == "C1.1"
    assert len(found["walk"]) == len(QUESTIONS)
    assert "**compared with bad-init**" in check("healthy", "--after", "bad-init", "--markdown").stdout


@pytest.mark.usefixtures("_few")
def test_thresholds_are_changed_here_or_in_a_file() -> None:
    assert check("healthy", "--set", "C1.1.high=1").exit_code == 1
    Path("steadyrun.toml").write_text("[thresholds]\nC1.1.high = 2")
    result = check("healthy")
    assert result.exit_code == 1
    assert "(limit high changed from 20 to 2)" in result.stdout
    assert check("healthy", "--set", "C1.1.high=20", "--set", "C4.1.high=1").exit_code == 0


@pytest.mark.usefixtures("_few")
@pytest.mark.parametrize(
    ("arguments", "problem", "remedy"),
    [
        (["nowhere"], "nowhere is not a folder", "runs near it: bad-init, healthy"),
        (["helthy"], "helthy is not a folder", "runs near it: healthy"),
        (["healthy/metrics"], "healthy/metrics is not a run directory", "runs near it: healthy"),
        (["empty"], "empty is not a run directory", "steadyrun check --help"),
        (["healthy", "--after", "empty"], "empty is not a run directory", "steadyrun check --help"),
        (["broken"], "cannot read", "steadyrun check --help"),
        (["healthy", "--json", "--junit"], "--json and --junit exclude each other", "choose one"),
        (["healthy", "--set", "C1.1.hihg=8"], "the given thresholds: there is no threshold", "--help"),
        (["healthy", "--set", "C1.1.high"], "'C1.1.high' is not NAME=NUMBER", "--help"),
        (["healthy", "--set", "C1.1.high=inf"], "C1.1.high must be finite", "--help"),
    ],
    ids=str,
)
def test_bad_input_is_one_clear_error(arguments: list[str], problem: str, remedy: str) -> None:
    Path("empty").mkdir()
    Path("broken").mkdir()
    Path("broken/manifest.json").write_text("{")
    result = check(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert problem in result.stderr
    assert remedy in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.usefixtures("_few")
def test_a_hostile_folder_name_is_only_shown() -> None:
    name = "\x1b[31m[red]x\u202e"
    Path("healthy").rename(name)
    result = check(name)
    assert result.exit_code == 0
    assert r"\x1b[31m[red]x\u202e  finished" in result.stdout
    assert "\x1b" not in result.stdout
    listed = check(".")
    assert r"\x1b[31m[red]x\u202e" in listed.stdout
    assert "\x1b" not in listed.stdout


@pytest.mark.usefixtures("_few")
def test_a_folder_of_runs_is_listed() -> None:
    result = check(".")
    assert result.exit_code == 1
    assert [line.split()[1] for line in result.stdout.splitlines()[1:]] == ["bad-init", "healthy"]
    assert "check . --run 1" in result.stderr
    chosen = check(".", "--run", "2")
    assert (chosen.exit_code, chosen.stdout) == (0, check("healthy").stdout)
    assert [json.loads(line)["verdict"] for line in check(".", "--json").stdout.splitlines()] == ["fault", "healthy"]
    for arguments, problem in ((["--run", "3"], "--run 3 does not exist"), (["--junit"], "--junit takes a single run")):
        refused = check(".", *arguments)
        assert refused.exit_code == 2
        assert problem in refused.stderr


def test_help_teaches_by_example() -> None:
    told = check("--help").stdout
    assert "steadyrun check experiments/fixed --after experiments/no-warmup" in told
    assert "tool.steadyrun.thresholds" in told
    assert "Exit codes: 0 healthy, 1 fault found" in told


def test_a_pipe_gets_lines_without_colour() -> None:
    done = subprocess.run([*PROGRAM, "check", "bad-init"], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) > 80
    assert done.stderr == ""


def test_an_encoding_without_the_symbols_is_no_error() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*PROGRAM, "check", "bad-init"], capture_output=True, check=False, env=environment)
    assert done.returncode == 1, done.stderr
    assert done.stdout.isascii()


def test_a_reader_that_leaves_changes_no_exit_code() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*PROGRAM, "check", "bad-init"], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert done.returncode == 1
    assert done.stderr == b""


@pytest.mark.parametrize("settings", [{}, {"NO_COLOR": "1"}], ids=str)
def test_a_terminal_gets_colour_unless_told_not_to(settings: dict[str, str]) -> None:
    code, text = in_terminal("check", "bad-init", columns=70, **settings)
    assert code == 1
    assert ("\x1b[1;31m" in text) == (settings == {})
    words = re.sub(r"\x1b\[[0-9;]*m", "", text).split("next\r\n")[0]
    assert max(map(len, words.splitlines())) <= 70


def test_an_error_of_ours_is_not_mistaken_for_a_fault() -> None:
    program = "import steadyrun.report.report as checking\nfrom steadyrun.cli import main\nchecking.walk = None\nmain()"
    done = subprocess.run([sys.executable, "-c", program, "check", "healthy"], capture_output=True, check=False)
    assert done.returncode == 2
    assert b"Traceback" in done.stderr
