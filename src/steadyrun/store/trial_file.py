"""The result of a trial that is kept with a run, as anybody may read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from steadyrun.store.jsonio import read_json

FILE = "trial.json"
SCHEMA = 1


def read_trial(root: Path) -> dict[str, Any] | None:
    """The kept result; None if there is none, or none that can be read."""
    try:
        content = read_json(root / FILE)
    except (OSError, ValueError):
        return None
    known = isinstance(content, dict) and content.get("schema") == SCHEMA and isinstance(content.get("verdict"), str)
    return content if known else None
