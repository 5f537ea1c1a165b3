"""The pages about importing: their logs are written, their commands typed, and what they promise is said."""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from steadyrun.cli import app
from steadyrun.importers.series_roles import ROLES

PAGES = Path(__file__).parents[2] / "docs" / "import"
MINE = ("huggingface", "lightning", "keras", "yolo", "csv-json-parquet", "stdout-logs", "trackers")
BLOCK = re.compile(r"(?:^`(?P<path>[^`\n]+)`:\n\n)?^```(?P<kind>csv|json|text|console)\n(?P<body>.*?)^```", re.M | re.S)


def table() -> str:
    rows = [f"| `{role}` | {', '.join(f'`{name}`' for name in names)} |" for role, names in ROLES.items()]
    return "\n".join(["| role | names, the best first |", "|---|---|", *rows])


def test_the_table_of_roles_is_the_code_s() -> None:
    assert table() in (PAGES / "README.md").read_text()


@pytest.mark.parametrize("name", MINE)
def test_a_page(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    typed = 0
    for block in BLOCK.finditer((PAGES / f"{name}.md").read_text()):
        if block["kind"] != "console":
            Path(block["path"]).parent.mkdir(parents=True, exist_ok=True)
            Path(block["path"]).write_text(block["body"])
            continue
        for command, expected in re.findall(r"^\$ steadyrun (.*)\n((?:[^$].*\n)*)", block["body"], re.M):
            result = CliRunner().invoke(app, shlex.split(command))
            for line in expected.splitlines():
                assert line in result.stderr, command
            wrong = any(line.startswith("error: ") for line in expected.splitlines())
            assert (result.exit_code == 2) == wrong, result.output
            typed += 1
    assert typed


def test_the_overview(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.log").write_text("".join(f"iter {step}: loss {9 / (step + 1):.3f}, time 1ms\n" for step in range(90)))
    commands, several = re.findall(r"```console\n(.*?)```", (PAGES / "README.md").read_text(), re.S)
    for command in re.findall(r"^\$ steadyrun (.*)$", commands, re.M):
        assert CliRunner().invoke(app, shlex.split(command)).exit_code in (0, 3), command
    curve = [2 + 2 * math.exp(-step / 60) + 0.01 * math.sin(step * 1.7) for step in range(200)]
    runs = (curve, [*curve[:100], *[math.nan] * 100], curve[:120])
    Path("seeds.log").write_text("".join(f"step {at} loss {loss:.4f}\n" for run in runs for at, loss in enumerate(run)))
    listed = CliRunner().invoke(app, ["check", "seeds.log"])
    said = [line for line in several.splitlines() if not line.startswith(("$", "One of them"))]
    assert (listed.stdout.splitlines(), listed.exit_code) == (said, 1)
    for page in PAGES.glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in (PAGES / "README.md").read_text(), page.name
