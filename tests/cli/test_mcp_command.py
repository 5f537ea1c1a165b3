"""`steadyrun mcp` before it serves. The server itself is tried in tests/frameworks, where its extra is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from steadyrun.cli import app


def test_without_the_extra_it_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def without(name: str, *rest: Any) -> Any:
        return None if name == "mcp" else find(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    result = CliRunner().invoke(app, ["mcp", str(tmp_path)])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "pip install 'steadyrun[mcp]'" in result.stderr


def test_a_root_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, says in (("nothing", "does not exist"), ("file", "is not a folder")):
        result = CliRunner().invoke(app, ["mcp", str(tmp_path / name)])
        assert result.exit_code == 2
        assert says in result.stderr
