"""Which answers name the cause of a bug of the fourth fleet: the families of the third, and some that are new.

A family without entries has no question that names such a cause.
"""

from __future__ import annotations

from diagnosis.third.families import ANSWERS as THIRD

NEW: dict[str, tuple[str, ...]] = {
    "batch too small for the loss": (),
    "mean of nothing": (),
    "hidden state lost": (),
    "hidden state of other data": (),
    "adapter scale out of range": (),
    "part not used": (),
    "frozen by mistake": (),
    "targets nearly empty": (),
    "optimizer steps too seldom": (),
    "missing values as numbers": (),
    "no baseline": (),
    "rewards not scaled": (),
    "schedule stepped too often": (),
    "recurrence grows": (),
    "order of the list as label": (),
}
ANSWERS: dict[str, tuple[str, ...]] = NEW | THIRD
