"""The examples run as a reader would run them: healthy by default, a fault if they are broken on purpose."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import steadyrun

pytestmark = pytest.mark.long

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, timeout=300, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_listed_once() -> None:
    listed = re.findall(r"^\| \[(.+?)\]\((.+?)\)", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    files = {path.name for path in EXAMPLES.iterdir() if path.suffix in {".py", ".ipynb", ".yml"}}
    assert [name for name, _ in listed] == [target for _, target in listed]
    assert {name for name, _ in listed} == files
    assert len(listed) == len(files)


def test_the_plain_loop_is_healthy(tmp_path: Path) -> None:
    assert run(tmp_path, str(EXAMPLES / "plain_loop.py")).startswith("✓ healthy  experiments/plain-loop")
    view = steadyrun.open_run(tmp_path / "experiments/plain-loop")
    assert view.events("probe-failed") == []
    assert view.events("config-note") == []
    assert view.manifest["preflight"]["verdict"] == "healthy"


def test_the_plain_loop_with_a_learning_rate_that_breaks_it(tmp_path: Path) -> None:
    printed = run(tmp_path, str(EXAMPLES / "plain_loop.py"), "experiments/too-high", "--lr", "30")
    assert printed.startswith("✗ fault  experiments/too-high")


def cells() -> list[dict[str, Any]]:
    notebook: dict[str, Any] = json.loads((EXAMPLES / "notebook.ipynb").read_text())
    assert notebook["nbformat"] == 4
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_has_no_outputs() -> None:
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells())


def test_the_cells_of_the_notebook_run(tmp_path: Path) -> None:
    """As a script; tests/frameworks executes them in a kernel."""
    (tmp_path / "cells.py").write_text("\n".join("".join(cell["source"]) for cell in cells()))
    assert run(tmp_path, "cells.py").splitlines()[-1] == "healthy"
    assert steadyrun.check(tmp_path / "experiments/too-high").verdict == "fault"


# -- the job for GitHub --------------------------------------------------------------------------------


def job() -> dict[str, Any]:
    workflow = yaml.safe_load((EXAMPLES / "github_actions.yml").read_text())
    assert set(workflow) == {"name", True, "permissions", "jobs"}  # YAML 1.1 reads `on` as true
    (only,) = workflow["jobs"].values()
    return dict(only)


def executed(folder: Path, train: str) -> list[tuple[str, int]]:
    """The commands of the job in a shell as GitHub's, except for the installation; each step and its exit code."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    (bin_folder / "python").symlink_to(sys.executable)
    command = bin_folder / "steadyrun"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m steadyrun "$@"\n')
    command.chmod(0o755)
    (folder / "plain_loop.py").write_text(train)
    paths = {"PATH": f"{bin_folder}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    given = os.environ | job()["env"] | paths | {"GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
    codes, failed = [], False
    for step in job()["steps"]:
        if "run" not in step or step["name"] == "Install" or (failed and step.get("if") != "always()"):
            continue
        done = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=folder, env=given, timeout=300, check=False)
        codes.append((step["name"], done.returncode))
        failed = failed or done.returncode != 0
    return codes


@pytest.mark.parametrize(("lr", "code"), [("3e-3", 0), ("30", 1)], ids=["healthy", "fault"])
def test_the_job_fails_on_a_fault_and_leaves_its_report(tmp_path: Path, lr: str, code: int) -> None:
    train = (EXAMPLES / "plain_loop.py").read_text().replace("default=3e-3", f"default={lr}")
    assert executed(tmp_path, train) == [("Train", 0), ("Report", 0), ("Check", code)]
    uploaded = job()["steps"][-1]["with"]["path"].split()
    assert all((tmp_path / name).exists() for name in uploaded)
    assert ("<failure" in (tmp_path / "steadyrun.xml").read_text()) == bool(code)
    assert ("healthy" if code == 0 else "fault") in (tmp_path / "summary.md").read_text()


def test_the_job_fails_if_training_crashes(tmp_path: Path) -> None:
    assert executed(tmp_path, "raise SystemExit(1)") == [("Train", 1), ("Report", 0), ("Check", 2)]
