"""The tools that one would use instead, through thin adapters, on the same cases."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from diagnosis.cases import Case

TOOLS: dict[str, str] = {}
"""Name of a tool: the package that it is imported as."""


def why_not(tool: str) -> str:
    """Why a tool cannot be asked here; empty where it can."""
    if tool == "steadyrun":
        return ""
    if tool not in TOOLS:
        return f"there is no adapter for it; there are {', '.join(TOOLS)}"
    return "" if find_spec(TOOLS[tool]) else "it is not installed (diagnosis/requirements-tools.txt)"


def measured(case: Case, tool: str, run: Path) -> dict[str, Any]:
    raise NotImplementedError
