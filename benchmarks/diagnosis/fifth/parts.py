"""The parts that the fifth fleet is joined from: modules with HEALTHY, TWINS_OF and CAUSES of their own programs."""

from __future__ import annotations

from typing import Any

from diagnosis.fifth import objectives, post_training

PARTS = (post_training, objectives)


def joined(what: str) -> dict[str, Any]:
    """What all parts have under a name; no two of them may use the same key."""
    pairs = [pair for part in PARTS for pair in getattr(part, what, {}).items()]
    assert len(pairs) == len(dict(pairs)), f"two parts share a key of {what}"
    return dict(pairs)
