"""The package as it is installed: nothing is missing from it, and importing it is light."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_no_source_file_is_ignored() -> None:
    """The build leaves out what .gitignore names, also where the file is tracked."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    files = "\n".join(
        str(file.relative_to(ROOT)) for file in (ROOT / "src").rglob("*.*") if "__pycache__" not in file.parts
    )
    found = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin"], input=files, cwd=ROOT, capture_output=True, text=True
    )
    assert found.stdout == ""


def test_import_loads_nothing_heavy() -> None:
    program = """
import sys, steadyrun
heavy = {"numpy", "pyarrow", "torch", "typer", "rich", "plotly", "jinja2", "starlette"} & set(sys.modules)
assert not heavy, heavy
assert sorted(steadyrun.__all__) == steadyrun.__all__
for name in steadyrun.__all__:
    getattr(steadyrun, name)
assert "torch" not in sys.modules
assert set(steadyrun.__all__) <= set(dir(steadyrun)), "completion offers the public names"
assert not callable(sys.modules["steadyrun.postmortem"]), "a room beside the function of its name"
"""
    subprocess.run([sys.executable, "-c", program], check=True)
