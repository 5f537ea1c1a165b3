"""Which answers name the cause of a bug of post-training: the families of the fourth fleet, and those of its own.

An entry is a question's code, or `code:outcome`; they were written down from the titles of the questions alone.
"""

from __future__ import annotations

from diagnosis.fourth.families import ANSWERS as FOURTH

NEW: dict[str, tuple[str, ...]] = {
    "prompts are learned": ("M1.1", "M1.2"),
    "answers have no labels": ("M1.1", "A3.7"),
    "ends are not learned": ("M1.3", "A3.5"),
    "ends are missing": ("M1.3", "A3.5"),
    "answers are cut": ("M1.3", "M1.1", "G2.4"),
    "text does not fit the tokenizer": ("M1.4",),
    "packed texts are not kept apart": ("M1.4",),
    "labels are shifted twice": ("A3.3",),
    "pads are learned": ("A3.4", "A3.9", "M1.3"),
    "adapters do not train": ("L1.1", "A4.1", "A4.4", "A4.5"),
    "adapters start wrong": ("L1.2",),
    "adapter scale": ("L1.3", "C4.1:diverging", "C7.2:rate-too-high"),
    "adapter rate": ("L1.3", "C4.1", "C7.1:rate-too-low", "C7.2:rate-too-high", "P6.5"),
    "base trains": ("L1.4",),
    "merged and kept": ("L1.4", "L1.1"),
    "new words are not trained": (),
    "preferences reversed": ("G1.1",),
    "pairs do not differ": ("G1.1", "A5.9"),
    "pairs partly reversed": ("G1.1", "A5.7"),
    "reference out of date": ("G1.1", "G1.2"),
    "reference unlike the policy": ("G1.1", "G1.2", "G2.3"),
    "beta out of range": ("G1.1", "G1.2", "G2.3", "C7.2:rate-too-high"),
    "post-training rate too high": (
        *("C4.1:diverging", "C7.2:rate-too-high", "P6.5:too-high", "L1.3", "G1.2", "G2.3", "G2.7"),
    ),
    "reward of another aim": ("G2.4",),
    "success falls": ("V1.8",),
    "advantage out of range": ("G2.5", "V1.8"),
    "groups do not vary": ("G2.1",),
    "policy rate too high": ("G2.7", "G2.3", "G2.2", "C7.2:rate-too-high", "C4.1:diverging", "P6.5:too-high"),
    "entropy out of range": ("G2.2",),
    "policy runs away": ("G2.3",),
    "stale policy": ("G2.6", "G2.7"),
    "value function is not trained": ("G2.5",),
    "discount out of range": ("G2.5", "V1.8"),
    "ends of episodes ignored": ("G2.5",),
    "kl too strong": ("G2.3", "V1.8"),
}
ANSWERS: dict[str, tuple[str, ...]] = FOURTH | NEW
