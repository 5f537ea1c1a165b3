"""Which answers name the cause of a bug of the fourth fleet: the families of the third, and some that are new.

A family without entries has no question that names such a cause.
"""

from __future__ import annotations

from diagnosis.third.families import ANSWERS as THIRD

NEW: dict[str, tuple[str, ...]] = {
    "batch too small for the loss": (),
    "mean of nothing": ("A3.7:nothing-to-learn",),
    "hidden state lost": (),
    "hidden state of other data": (),
    "adapter scale out of range": (),
    "part not used": ("A4.3:cut-off", "A4.3:unused", "A4.3:table-unused"),
    "frozen by mistake": ("A4.4:nothing-trainable", "A4.4:frozen-at-random", "A4.4:perhaps-at-random"),
    "targets nearly empty": ("A5.9:constant",),
    "optimizer steps too seldom": ("A4.5:no-step", "A4.5:empty-step"),
    "missing values as numbers": ("A5.8:not-scaled", "A5.6:differs", "A5.6:other-scale", "A5.6:unlike"),
    "no baseline": (),
    "rewards not scaled": (),
    "schedule stepped too often": (
        *("C2.1:stepped-too-often", "C2.1:horizon-too-short", "C2.1:other-curve"),
        *("P5.8:counts-epochs", "P5.8:not-as-declared"),
    ),
    "recurrence grows": (),
    "order of the list as label": (),
}
ANSWERS: dict[str, tuple[str, ...]] = NEW | THIRD
