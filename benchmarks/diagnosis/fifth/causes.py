"""The bugs of the fifth fleet: those of post-training, joined with those of other objectives.

damage.json has the numbers of one seed for post-training, which `python -m diagnosis.fifth.quality` writes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from diagnosis.fifth.parts import joined
from diagnosis.second.causes import in_words

DAMAGE: dict[str, dict[str, dict[str, float | None]]] = joined("DAMAGE") | json.loads(
    Path(__file__).with_name("damage.json").read_text("utf-8")
)
CAUSES: dict[str, Any] = joined("CAUSES")


def damage(bug: str) -> str:
    """Held-out scores and validation losses without the bug and with it, and why it is wrong if they look fine."""
    return in_words(DAMAGE[bug], CAUSES[bug].fine)
