"""SKILL.md: it comes out of the command, it has the form of a skill, and every command in it does what it says."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import steadyrun
from steadyrun.cli import app

SKILL = Path(steadyrun.__file__).parent / "agents" / "SKILL.md"
TEXT = SKILL.read_text(encoding="utf-8")

# What each command of the page leaves with, and what it says; the run is bad-init.
EXPECTED = {
    "check experiments/bad-init": (1, "C5.1"),
    "check experiments/bad-init --json": (1, '"headline"'),
    "check experiments/bad-init --all": (1, "C5.1"),
    "check experiments/bad-init --markdown": (1, "C5.1"),
    "explain C5.1": (0, "initial weights"),
    "replay experiments/bad-init": (0, "bit-equal"),
    "postmortem experiments/bad-init --no-lesson": (0, "experiments/bad-init/postmortems/step-0000000.md"),
    "postmortem experiments/bad-init --no-lesson --json": (0, '"root_cause"'),
    "dashboard experiments/bad-init": (0, "experiments/bad-init/dashboard.html"),
    "check experiments/healthy --after experiments/bad-init": (0, "C5.1"),
    "verify experiments/bad-init/postmortems/step-0000000.md experiments/healthy": (0, "C5.1"),
}


def commands() -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert all(line.startswith("$ steadyrun ") for line in lines)
    return [line.removeprefix("$ steadyrun ") for line in lines]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tutor_run: Callable[..., steadyrun.RunView]) -> Path:
    folder = tmp_path_factory.mktemp("skill")
    for fault in ("bad-init", "healthy"):
        shutil.copytree(tutor_run(fault, steps=300).root, folder / "experiments" / fault)
    return folder


def test_the_commands_do_what_the_page_says(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert sorted(commands()) == sorted(EXPECTED)
    for command in commands():
        code, says = EXPECTED[command]
        result = CliRunner().invoke(app, shlex.split(command))
        assert result.exit_code == code, (command, result.output)
        assert says in result.stdout, (command, result.stdout)


def test_the_programs_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    programs = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(programs) == 2
    for program in programs:
        exec(compile(program, "SKILL.md", "exec"), {})
    assert steadyrun.open_run("experiments/mine").last_step() == 99


def test_the_command_prints_the_page() -> None:
    result = CliRunner().invoke(app, ["mcp", "--skill"])
    assert result.exit_code == 0
    assert result.stdout == TEXT


def test_it_has_the_form_of_a_skill() -> None:
    head = re.match(r"---\nname: ([a-z-]{1,64})\ndescription: ([^\n<>]{1,1024})\n---\n\n# ", TEXT)
    assert head is not None
    assert head[1] == "steadyrun"
    assert len(TEXT.splitlines()) <= 130


def test_every_command_and_option_in_it_exists() -> None:
    known = get_command(app).commands  # type: ignore[attr-defined]
    for name, rest in re.findall(
        r"steadyrun ([a-z]+)((?: [^`\n|]*)?)", "\n".join(re.findall(r"`(steadyrun [^`]*)`", TEXT))
    ):
        if name == "import" and name not in known:
            continue
        assert name in known
        options = {option for parameter in known[name].params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", rest)) <= options | {"--help"}


def test_the_keys_it_names_are_those_of_the_report(folder: Path) -> None:
    report = steadyrun.check(folder / "experiments" / "bad-init").to_dict()
    named = re.findall(r"^\| `([a-z_`, ]+)` \|", TEXT, re.MULTILINE)
    assert {key for each in named for key in re.findall(r"[a-z_]+", each)} <= set(report)
    row = next(line for line in TEXT.splitlines() if line.startswith("| `headline`"))
    for key in re.findall(r"`([a-z_.]+)`", row)[1:]:
        found = report["headline"]
        for part in key.split("."):
            found = found[part]
