"""Trials keep their twins in a folder of the test."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where ended twins are kept."""
    folder = tmp_path / "scratch"
    monkeypatch.setenv("STEADYRUN_SCRATCH", str(folder))
    return folder
