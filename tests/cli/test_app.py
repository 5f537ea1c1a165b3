"""The command line as a whole."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

import steadyrun
from steadyrun.cli import app

runner = CliRunner()


def test_version() -> None:
    result = runner.invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout == f"steadyrun {steadyrun.__version__}\n"


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_says_where_to_start(flag: str) -> None:
    result = runner.invoke(app, [flag])
    assert result.exit_code == 0
    assert "steadyrun demo" in result.stdout


def test_help_of_demo_teaches_by_example() -> None:
    result = runner.invoke(app, ["demo", "--help"])
    assert result.exit_code == 0
    assert "steadyrun demo no-warmup --steps 300" in result.stdout
    assert "Exit codes" in result.stdout


def test_an_unknown_command_is_an_error() -> None:
    assert runner.invoke(app, ["dmeo"]).exit_code == 2


@pytest.mark.parametrize("command", ["demo", "check", "explain", "mcp"])
def test_help_imports_nothing_heavy(command: str) -> None:
    code = (
        "import sys\n"
        "from steadyrun.cli import app\n"
        f"app([{command!r}, '--help'], standalone_mode=False)\n"
        "heavy = {'torch', 'tokenizers', 'plotly', 'starlette', 'numpy', 'pyarrow'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_python_m_steadyrun() -> None:
    done = subprocess.run([sys.executable, "-m", "steadyrun", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith(steadyrun.__version__)
