"""The bugs of the second fleet: what is wrong, the family of the cause, and what damage it does.

`fine` says why a run is wrong although its held-out numbers look fine; without it the score, or at least the validation
loss, is plainly worse. The numbers of every program, means of three seeds, are in damage.json, which
`python -m diagnosis.second.quality` writes; `damage` puts them in words.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from diagnosis.second.families import ANSWERS
from steadyrun.questions.aliases import outcome_of

DAMAGE: dict[str, dict[str, dict[str, float | None]]] = json.loads(
    Path(__file__).with_name("damage.json").read_text("utf-8")
)


class Named(frozenset[str]):
    """Answers that name a cause; holds a pair of code and outcome where the code, or both, are listed."""

    def __contains__(self, said: object) -> bool:
        if not isinstance(said, tuple):
            return False
        return super().__contains__(said[0]) or super().__contains__(":".join(said))


@dataclass(frozen=True)
class Cause:
    """What is wrong in a program that has the bug."""

    words: str
    family: str
    fine: str = ""
    answers: ClassVar[dict[str, tuple[str, ...]]] = ANSWERS

    @property
    def named(self) -> Named:
        """The headlines that are right."""
        return Named(":".join(outcome_of(*each.split(":"))) for each in self.answers[self.family])

    @property
    def culprits(self) -> tuple[str, ...]:
        """The causes that the hunt of a replay may name."""
        return tuple(each.removeprefix("E1.1:") for each in self.answers[self.family] if each.startswith("E1.1:"))


def damage(bug: str) -> str:
    """Held-out scores and validation losses without the bug and with it, and why it is wrong if they look fine."""
    return in_words(DAMAGE[bug], CAUSES[bug].fine)


def in_words(rows: dict[str, dict[str, float | None]], fine: str) -> str:
    """The measured damage of one bug in every program that has it."""
    scores = [
        f"{program} {_pair(row, '')}"
        + (f" (validation {_pair(row, '_validation')})" if row["healthy_validation"] else "")
        for program, row in rows.items()
    ]
    return "; ".join(filter(None, [", ".join(scores), fine]))


def _pair(row: dict[str, float | None], end: str) -> str:
    values = (row[f"healthy{end}"], row[f"faulty{end}"])
    return " -> ".join("not finite" if value is None else f"{value:.3g}" for value in values)


CAUSES: dict[str, Cause] = {
    "rate-too-high": Cause("the learning rate is 60 times too high", "rate too high"),
    "rate-too-low": Cause("the learning rate is 1000 times too low", "rate too low"),
    "decay-too-high": Cause("weights shrink faster than they learn: the decay is 20", "decay out of range"),
    "dropout-too-high": Cause("dropout of 0.97 leaves next to nothing", "dropout out of range"),
    "smoothing-too-high": Cause("label smoothing of 0.95 hides the labels", "smoothing out of range"),
    "clip-too-tight": Cause("gradients are clipped to a norm of 1e-5, under SGD", "clip out of range"),
    "epsilon-too-large": Cause("Adam's epsilon is 10: updates are a tiny part", "optimizer setting out of range"),
    "momentum-too-high": Cause("momentum of 0.9995: the loss swings", "optimizer setting out of range"),
    "betas-swapped": Cause("Adam's two betas are swapped", "optimizer setting out of range"),
    "temperature-too-high": Cause("the temperature of the contrast is 50, not 0.2", "temperature out of range"),
    "start-too-wide": Cause("matrices start 30 times too wide", "start too wide"),
    "start-all-alike": Cause("all entries of a matrix start with one value", "start without differences"),
    "same-batch": Cause("every step gets the first batch of the first epoch", "same data again"),
    "tiny-data": Cause("only two batches of data, a slice left from debugging", "too few examples"),
    "duplicated": Cause("forty examples, each of them forty times", "too few examples"),
    "sorted": Cause("the data are sorted by class and not shuffled", "order of the data"),
    "labels-permuted": Cause("the training labels belong to other inputs", "labels unrelated"),
    "labels-partly-wrong": Cause("six of ten training labels are wrong", "labels partly wrong"),
    "labels-truncated": Cause("training transcripts are cut after two symbols", "labels partly wrong"),
    "one-batch-in-other-units": Cause("the targets of one batch per epoch are 1000 times too large", "one bad batch"),
    "labels-numbered-anew": Cause("training numbers the classes in another order", "numbered differently"),
    "val-not-normalised": Cause("training inputs are normalised, validation inputs are not", "prepared differently"),
    "another-vocabulary": Cause("validation numbers its words by another table", "numbered differently"),
    "identifiers-shifted": Cause("training counts the items from 1, validation from 0", "numbered differently"),
    "validation-in-training": Cause(
        "validation examples are trained on",
        "validation in training",
        "the validation loss is better than it should be",
    ),
    "decoder-sees-target": Cause("in training the decoder is fed the value it has to write", "target is visible"),
    "teacher-forced": Cause(
        "the decoder is fed the truth in training, its own values later", "training unlike evaluation"
    ),
    "same-view": Cause("both views of a pair are the same augmentation", "target is visible"),
    "part-not-in-optimizer": Cause("a part of the model is in no optimizer", "part outside the optimizer"),
    "cut-off": Cause("a detach keeps the gradient from the first part", "gradient cut off"),
    "unregistered": Cause("layers in a plain list are never trained", "weights not registered"),
    "input-ignored": Cause("an input that decides is never used: the edges, the time", "input not used"),
    "checkpoint-not-loaded": Cause("the names do not fit, so the frozen body stays random", "frozen at random"),
    "micro-batches-lost": Cause(
        "gradients are zeroed between micro-batches: only the last counts",
        "micro-batches lost",
        "three quarters of the data do nothing, which is only a little worse",
    ),
    "not-divided": Cause("the loss is not divided by the number of micro-batches", "micro-batches not divided"),
    "padding-learned": Cause("padding counts as if it were data", "padding is learned"),
    "mask-inverted": Cause("the mask is inverted: only padding counts", "mask inverted"),
    "dead-units": Cause("a bias of -30 switches a layer off", "dead units"),
    "inputs-not-scaled": Cause("inputs and targets come in raw units", "saturated by its inputs"),
    "vanishing": Cause("fourteen sigmoid layers without a way around them", "vanishing gradient"),
    "batchnorm-momentum-0": Cause("running statistics never move: momentum 0", "running statistics stand still"),
    "eval-left-on": Cause(
        "the model stays in evaluation mode after the first validation",
        "evaluation mode left on",
        "running statistics stand still from step 50 on, and the score is as good",
    ),
    "validated-in-training-mode": Cause(
        "validation runs in training mode",
        "validated in training mode",
        "the model is fine, its validation loss is not",
    ),
    "divergence-x50": Cause("the divergence weighs 50 times too much: the code is empty", "collapse"),
    "divergence-sign": Cause("the divergence is subtracted: the loss has no bottom", "wrong sign"),
    "wrong-reduction": Cause("a mean over pixels beside a sum over the code", "wrong reduction"),
    "no-negatives": Cause("nothing but positive pairs: one answer fits all", "collapse"),
    "entropy-too-heavy": Cause("the entropy bonus is 500 times too heavy: moves stay random", "collapse"),
    "advantage-sign": Cause("the advantage has the wrong sign", "wrong sign"),
    "returns-reversed": Cause("the returns are attached to the moments in reverse", "labels unrelated"),
    "stepped-per-epoch": Cause(
        "a schedule over steps is stepped once per epoch",
        "schedule stepped too seldom",
        "the rate is still in its warmup at the end; validation is a little worse",
    ),
    "horizon-in-epochs": Cause(
        "the horizon of the schedule is in epochs: the rate goes up and down",
        "schedule too short",
        "the rate ends anywhere between its peak and zero",
    ),
    "rate-grows": Cause("a factor of 1.02 per step, where the rate should decay", "schedule rises"),
    "decayed-too-soon": Cause("the rate falls to a third every ten steps", "schedule too short"),
    "optimizer-rebuilt": Cause("the optimizer's state is emptied at every step", "optimizer state lost at every step"),
    "optimizer-of-a-copy": Cause("the optimizer holds a copy of the model", "optimizer of another model"),
    "never-zeroed": Cause("gradients are never zeroed", "gradients kept", "the forecaster is only a little worse"),
    "erased": Cause("gradients are zeroed between backward and step", "gradients erased"),
    "clipped-after-step": Cause(
        "gradients are clipped after the step",
        "clip in the wrong place",
        "the run is the one without a clip, hardly worse",
    ),
    "log-of-zero": Cause("the logarithm of a number that is zero or less", "logarithm of zero"),
    "nan-example": Cause("one training example holds a NaN", "example that is not finite"),
    "impossible-example": Cause("one transcript is longer than its recording", "example that cannot be learned"),
    "half-precision": Cause("fp16 weights: Adam's epsilon is rounded to zero", "number format"),
    "root-of-zero": Cause("the root of a distance that is zero: its gradient is NaN", "root of zero"),
    "softmax-twice": Cause("probabilities are softmaxed again by the cross-entropy", "squashed twice"),
    "softmax-over-batch": Cause("the softmax runs over the batch, not the classes", "softmax over the wrong axis"),
    "blank-is-a-symbol": Cause("the first symbol has the number of the blank", "numbered differently"),
    "broadcast": Cause("predictions (N, 1) against targets (N) broadcast to N x N", "broadcast"),
    "wrong-target": Cause("the model is asked for its own input", "wrong target"),
    "variance-for-deviation": Cause("the noise is scaled by its variance, not its deviation", "wrong formula"),
    "optimizer-lost": Cause(
        "the optimizer's state is lost at the resume",
        "optimizer state lost at the resume",
        "the moments build up again: hardly worse at the end",
    ),
    "schedule-restarted": Cause(
        "the schedule begins again at the resume",
        "schedule begins again at the resume",
        "the run ends at half of its peak rate, as good as before",
    ),
    "data-restarted": Cause(
        "the data begin again at the resume", "data begin again at the resume", "a part of the data is seen more often"
    ),
    "old-weights": Cause("the resume loads the weights of step 0", "weights lost at the resume"),
    "partly-loaded": Cause("the resume leaves a part of the model at random", "weights lost at the resume"),
}
