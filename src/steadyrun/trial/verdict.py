"""A verdict: its kinds, the question whose cause it proves, and the fix that belongs to each cause."""

from __future__ import annotations

from dataclasses import dataclass

from steadyrun.trial import factor as kinds

FAULT, IMPROVEMENT, CLEAR, UNDECIDED = "fault", "improvement", "clear", "undecided"
REPEATED = "repeated"  # a cause that is seen without a change

# The question whose cause a change decides, and the outcome that it proves.
CAUSES: dict[str, tuple[str, str]] = {
    "rate-high": ("C7.2", "rate-too-high"),
    "rate-low": ("C7.1", "rate-too-low"),
    kinds.WARMUP: ("C7.2", "rate-too-high"),
    kinds.DECAY: ("C7.3", "too-strong"),
    kinds.DROPOUT: ("C7.5", "too-high"),
    kinds.SMOOTHING: ("C7.6", "hides-learning"),
    kinds.CLIP: ("C7.1", "clip-too-tight"),
    kinds.OPTIMIZER: ("C7.4", "epsilon"),
    kinds.START: ("C5.1", "too-wide"),
    kinds.PRECISION: ("A4.5", "rounded-away"),
    kinds.TARGETS: ("S1.4", "unrelated"),
    kinds.INPUTS: ("P3.5", "inputs-ignored"),
    kinds.PREPARATION: ("A5.6", "differs"),
    REPEATED: ("V1.6", "stuck"),
    kinds.PART: ("A4.1", "left-out"),
    kinds.TERM: ("V1.2", "term-left-behind"),
    kinds.FUNCTION: ("T1.1", "backward"),
    kinds.BLOCK: ("T1.2", "block"),
}

FIXES: dict[str, str] = {
    kinds.WARMUP: "warm up for longer, or lower the learning rate",
    kinds.DECAY: "lower the weight decay; 0.01 to 0.1 is usual with AdamW",
    kinds.DROPOUT: "lower the dropout; 0.1 to 0.5 is usual",
    kinds.SMOOTHING: "lower the label smoothing; 0.1 is usual",
    kinds.CLIP: "raise the clip threshold, or do not clip",
    kinds.OPTIMIZER: "go back to the optimizer's usual betas, epsilon and momentum",
    kinds.START: "use the modules' own initial weights, or a smaller standard deviation",
    kinds.PRECISION: "keep the weights in float32 and use autocast for the passes",
    kinds.TARGETS: "look at a few examples with their targets: index, shuffle and join inputs and targets together",
    kinds.INPUTS: "follow the input through the model: something drops or overwrites it",
    kinds.PREPARATION: "prepare training and validation with the same code: scale, vocabulary, numbering of classes",
    REPEATED: "let the loader go on: shuffle, and make no new iterator at every step",
    kinds.PART: "give the optimizer these parameters, after the model is complete, and do not detach or freeze them",
    kinds.TERM: "lower the weight of this term",
    kinds.FUNCTION: "correct its backward, or let autograd differentiate the forward",
    kinds.BLOCK: "look into this block, or replace it by a plain one",
}


@dataclass(frozen=True)
class Verdict:
    """What the twins say."""

    kind: str
    cause: str  # a key of CAUSES; "" if there is none
    factor: str
    message: str
    more: str = ""  # of an undecided trial: what would decide
    code: str = ""
    outcome: str = ""
    fix: str = ""
