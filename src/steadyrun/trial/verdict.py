"""Verdicts: their kinds, the question that each cause belongs to, and its fix."""

from __future__ import annotations

from dataclasses import dataclass

from steadyrun.trial import factor as kinds

FAULT, IMPROVEMENT, CLEAR, UNDECIDED = "fault", "improvement", "clear", "undecided"
REPEATED = "repeated"  # a cause that needs no change to detect

# The question and the outcome that each cause proves.
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
    kinds.WARMUP: "Use a longer warmup, or lower the learning rate.",
    kinds.DECAY: "Lower the weight decay; 0.01 to 0.1 is usual with AdamW.",
    kinds.DROPOUT: "Lower the dropout; 0.1 to 0.5 is usual.",
    kinds.SMOOTHING: "Lower the label smoothing; 0.1 is usual.",
    kinds.CLIP: "Raise the clip threshold, or remove clipping.",
    kinds.OPTIMIZER: "Use the optimizer's usual betas, epsilon and momentum.",
    kinds.START: "Use the modules' default initial weights, or a smaller standard deviation.",
    kinds.PRECISION: "Keep the weights in float32, and use torch.autocast for the passes.",
    kinds.TARGETS: "Print a few examples with their targets; index and shuffle inputs and targets together.",
    kinds.INPUTS: "Follow the input through forward(): something drops or overwrites it.",
    kinds.PREPARATION: "Prepare training and validation with the same code: scale, vocabulary, class numbers.",
    REPEATED: "Iterate over the loader once per epoch instead of calling iter() in every step, and shuffle.",
    kinds.PART: "Build the optimizer after the model is complete, and do not detach or freeze these parameters.",
    kinds.TERM: "Lower the weight of this term.",
    kinds.FUNCTION: "Correct its backward, or let autograd differentiate the forward.",
    kinds.BLOCK: "Check this block, or replace it by a standard one.",
}


@dataclass(frozen=True)
class Verdict:
    """The verdict of a trial."""

    kind: str
    cause: str  # a key of CAUSES; "" if there is none
    factor: str
    message: str
    more: str = ""  # of an undecided trial: what would decide
    code: str = ""
    outcome: str = ""
    fix: str = ""
