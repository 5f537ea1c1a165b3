"""The parts that the fifth fleet is joined from: modules with HEALTHY, TWINS_OF and CAUSES of their own programs."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

NAMES = ("post_training", "objectives")
PARTS = [import_module(name) for each in NAMES if find_spec(name := f"diagnosis.fifth.{each}") is not None]


def joined(what: str) -> dict[str, Any]:
    """What all parts have under a name; no two of them may use the same key."""
    pairs = [pair for part in PARTS for pair in getattr(part, what, {}).items()]
    assert len(pairs) == len(dict(pairs)), f"two parts share a key of {what}"
    return dict(pairs)
