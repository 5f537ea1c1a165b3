"""Which answers name the cause of a bug of the third fleet: the families of the second, and some that are new.

The new ones have no entries: whoever has a question that names such a cause fills them in.
"""

from __future__ import annotations

from diagnosis.second.families import ANSWERS as SECOND

NEW = (
    *("warmup longer than the run", "loss term outweighs the others", "loss term missing", "wrong axis", "wrong mask"),
    *("one class only", "data of one part only", "validation labels unrelated", "inputs lose their content"),
    *("teacher at random", "average of weights stands still", "average of weights lost at the resume"),
    *("output cannot reach the target", "activation without curvature"),
    *("target network stands still", "no exploration", "discount out of range"),
)
ANSWERS: dict[str, tuple[str, ...]] = dict.fromkeys(NEW, ()) | SECOND
