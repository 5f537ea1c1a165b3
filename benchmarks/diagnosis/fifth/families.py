"""Which answers name the cause of a bug of post-training: the families of the fourth fleet, and those of its own.

An entry is a question's code, or `code:outcome`; they were written down from the titles of the questions alone.
"""

from __future__ import annotations

from diagnosis.fourth.families import ANSWERS as FOURTH

POST_TRAINING: dict[str, tuple[str, ...]] = {
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
    "new words are not trained": ("L1.1:new-words",),
    "preferences reversed": ("G1.1",),
    "pairs do not differ": ("G1.1", "A5.9"),
    "pairs partly reversed": ("G1.1", "A5.7"),
    "reference out of date": ("G1.1", "G1.2"),
    "reference unlike the policy": ("G1.1", "G1.2", "G1.3", "G2.3"),
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
    "stale policy": ("G2.6", "G2.7", "A2.5:target-stands-still"),
    "value function is not trained": ("G2.5",),
    "discount out of range": ("G2.5", "V1.8"),
    "ends of episodes ignored": ("G2.5",),
    "kl too strong": ("G2.3", "V1.8"),
}
OTHER_OBJECTIVES: dict[str, tuple[str, ...]] = {
    "divergence has the wrong sign": ("G3.2", *FOURTH["wrong sign"]),
    "divergence not counted": ("G3.2",),
    "divergence outweighs the others": ("G3.2", *FOURTH["loss term outweighs the others"]),
    "noise of the code is wrong": ("G3.2",),
    "code not used": ("G3.2", "P3.5", "A4.3", *FOURTH["input not used"]),
    "generator does not learn": ("A4.1", "A4.3", "A4.5", "A4.6", "P4.1", "P4.5", "P4.6", "P4.2", "C7.1", "G3.1"),
    "generator learns the wrong thing": ("G3.1", *FOURTH["wrong sign"]),
    "critic learns the wrong thing": ("G3.1", "A5.9", *FOURTH["wrong sign"]),
    "generator without noise": ("G3.1", "S4.3", "P3.5", *FOURTH["input not used"]),
    "gradients of the other side": ("G3.1", "A1.1", "P5.1"),
    "inputs not scaled": ("A5.8",),
    "another target than declared": ("G3.5",),
    "time not used": ("G3.5:one-time", "P3.5", "A4.3", *FOURTH["input not used"]),
    "noise is wrong": ("G3.5", "D2.3", "A5.9"),
    "noise schedule is wrong": ("G3.5",),
    "contrastive temperature out of range": ("G3.3",),
    "too few negatives": ("G3.3", "A5.9"),
    "wrong positives": ("G3.3", "S1.1", "A5.9", "A3.1", "A5.7", "S1.4"),
    "no negatives": ("G3.4", *FOURTH["collapse"]),
    "views too alike": ("A5.9", "S1.1"),
    "target follows too fast or not": ("A2.5",),
    "average of weights stands still": (*FOURTH["average of weights stands still"], "A2.5:follows-too-slowly"),
    "teacher at random": ("G3.6:untrained",),
    "squashed twice": (*FOURTH["squashed twice"], "G3.6:squashed-twice"),
    "teacher in training mode": ("A2.1", "A2.2", "P5.4", "P5.5"),
    "teacher learns as well": ("A4.1", "A4.4", "A2.5", "G3.6:learns"),
    "temperature on one side": ("G3.3", "G3.6:one-sided"),
    "weight of the terms is wrong": (
        *("V1.2", "A3.1:rewards-errors", "G3.6:not-counted", *FOURTH["loss term outweighs the others"]),
    ),
    "codebook does not follow": ("A4.3", "P4.5", "A4.5", "A4.6"),
    "few codes used": ("A4.3", "S4.3", "C5.1", "G3.7:one-code"),
}
ANSWERS: dict[str, tuple[str, ...]] = FOURTH | POST_TRAINING | OTHER_OBJECTIVES
