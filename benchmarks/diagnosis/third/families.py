"""Which answers name the cause of a bug of the third fleet: the families of the second, and some that are new.

A family without entries has no question that names such a cause.
"""

from __future__ import annotations

from diagnosis.second.families import ANSWERS as SECOND

NEW: dict[str, tuple[str, ...]] = {
    "warmup longer than the run": ("P5.8:warmup-longer-than-run", "P5.8:not-as-declared", "C2.2:not-reached"),
    "loss term outweighs the others": ("V1.2:term-left-behind", "A3.1:one-sided"),
    "loss term missing": (),
    "wrong axis": ("P3.7:rows-mix",),
    "wrong mask": ("S1.1:sees-the-answer", "P3.6:not-causal", "P3.6:sees-target"),
    "one class only": ("A5.9:constant",),
    "data of one part only": ("V1.6:by-heart", "V1.6:few-of-many"),
    "validation labels unrelated": ("A5.6:unlike",),
    "inputs lose their content": ("P3.5:inputs-ignored",),
    "teacher at random": (),
    "average of weights stands still": ("A2.5:never-moves", "A2.5:lags"),
    "average of weights lost at the resume": ("A2.5:never-moves", "A2.5:lags", "A2.5:lost-at-resume"),
    "output cannot reach the target": ("A3.1:out-of-reach",),
    "activation without curvature": (),
    "target network stands still": ("A2.5:target-stands-still",),
    "no exploration": (),
    "discount out of range": (),
}
ANSWERS: dict[str, tuple[str, ...]] = NEW | SECOND
