"""The examples of frameworks run as a reader would run them, and the notebook in a kernel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import steadyrun

EXAMPLES = Path(__file__).parents[2] / "examples"
BREAKS = {"hugging_face.py": "3", "lightning_module.py": "30", "jax_loop.py": "30"}  # a learning rate


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, timeout=300, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("example", BREAKS)
def test_an_example_is_healthy(example: str, tmp_path: Path) -> None:
    assert "✓ healthy  experiments/mine" in run(tmp_path, str(EXAMPLES / example), "experiments/mine")
    view = steadyrun.open_run(tmp_path / "experiments/mine")
    assert view.events("probe-failed") == []
    assert view.events("config-note") == []


@pytest.mark.parametrize("example", BREAKS)
def test_a_learning_rate_breaks_it(example: str, tmp_path: Path) -> None:
    printed = run(tmp_path, str(EXAMPLES / example), "experiments/mine", "--lr", BREAKS[example])
    assert "✗ fault  experiments/mine" in printed


def test_the_notebook_runs_in_a_kernel(tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(notebook)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output.output_type == "error"]
    shown = [str(output.data.get("text/html", "")) for output in outputs if output.output_type == "execute_result"]
    assert len(shown) == 3
    assert "fault" in shown[0]
    assert "the seven panels" in shown[1]
    assert "healthy" in shown[2]
    assert steadyrun.check(tmp_path / "experiments/too-high").verdict == "fault"
    assert steadyrun.check(tmp_path / "experiments/fixed").verdict == "healthy"
