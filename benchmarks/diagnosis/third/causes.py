"""The bugs of the third fleet: what is wrong, the family of the cause, and what damage it does.

As in the second fleet; damage.json has the means of two seeds, which `python -m diagnosis.third.quality` writes. A bug
of the shared loop has the name that it has there, and so its words and its family.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from diagnosis.second import causes as second
from diagnosis.second.causes import in_words
from diagnosis.third.families import ANSWERS

DAMAGE: dict[str, dict[str, dict[str, float | None]]] = json.loads(
    Path(__file__).with_name("damage.json").read_text("utf-8")
)


@dataclass(frozen=True)
class Cause(second.Cause):
    """What is wrong in a program that has the bug, by the families of this fleet."""

    answers: ClassVar[dict[str, tuple[str, ...]]] = ANSWERS


def damage(bug: str) -> str:
    """Held-out scores and validation losses without the bug and with it, and why it is wrong if they look fine."""
    return in_words(DAMAGE[bug], CAUSES[bug].fine)


def shared(bug: str, fine: str = "") -> Cause:
    """A bug that the second fleet has as well."""
    return Cause(second.CAUSES[bug].words, second.CAUSES[bug].family, fine)


CAUSES: dict[str, Cause] = {
    "rate-x25": Cause("the learning rate is 25 times too high", "rate too high"),
    "rate-a-300th": Cause("the learning rate is 300 times too low", "rate too low"),
    "decay-of-5": Cause("the weight decay is 5", "decay out of range"),
    "dropout-of-90": Cause("dropout of 0.9", "dropout out of range"),
    "smoothing-of-80": Cause("label smoothing of 0.8", "smoothing out of range"),
    "clip-at-1e-4": Cause("gradients are clipped to a norm of 1e-4, under SGD", "clip out of range"),
    "epsilon-of-1": Cause("Adam's epsilon is 1", "optimizer setting out of range"),
    "momentum-of-0.998": Cause("momentum of 0.998", "optimizer setting out of range"),
    "betas-swapped": shared("betas-swapped"),
    "warmup-beyond-the-end": Cause("the warmup is a hundred times as long as the run", "warmup longer than the run"),
    "start-x12": Cause("matrices start 12 times too wide", "start too wide"),
    "start-at-zero": Cause("all matrices start at zero", "start without differences"),
    "weights-in-bf16": Cause("the weights themselves are bf16, so small updates are lost", "number format"),
    "positive-weight-500": Cause("a topic that is there weighs 500 times", "loss term outweighs the others"),
    "heat-of-300": Cause("the teacher's answers are softened by 300, without the square", "temperature out of range"),
    "average-never-updated": Cause(
        "the validated average of the weights is never updated", "average of weights stands still"
    ),
    "average-too-slow": Cause("the average of 400 steps has a decay of 0.9998", "average of weights stands still"),
    "average-lost": Cause(
        "the average of the weights begins at random after the resume", "average of weights lost at the resume"
    ),
    "discount-above-1": Cause("a discount of 1.3: the values have no end", "discount out of range"),
    "discount-0": Cause("a discount of 0: only the next move counts", "discount out of range"),
    "same-batch": shared("same-batch"),
    "tiny-data": shared("tiny-data"),
    "twenty-examples": Cause("twenty pictures, each of them 64 times", "too few examples"),
    "thirty-texts": Cause("thirty texts, each of them fifty times", "too few examples"),
    "one-text": Cause("one and the same text, read in every row", "too few examples"),
    "three-points": Cause("the equation is asked for at three points only", "too few examples"),
    "first-part-only": Cause("points are drawn from the first quarter of the time", "data of one part only"),
    "sorted": shared("sorted"),
    "one-figure-only": Cause("a filter that stayed leaves one class", "one class only"),
    "labels-permuted": shared("labels-permuted"),
    "boxes-of-other-pictures": Cause("the boxes belong to other pictures, the kinds do not", "labels unrelated"),
    "tags-of-the-next-sentence": Cause("the file of tags is off by one sentence", "labels unrelated"),
    "tags-of-the-next-word": Cause("the tags are off by one word", "wrong target"),
    "labels-of-the-batch": Cause("the label of one example is given to 32", "labels unrelated"),
    "answers-in-another-order": Cause("the stored answers of the teacher are in another order", "labels unrelated"),
    "rewards-of-other-moves": Cause("rewards are attached to other moves", "labels unrelated"),
    "positives-of-any-kind": Cause("the near one of a triplet is of any kind", "labels unrelated"),
    "half-of-the-labels-wrong": Cause("every second label is that of another example", "labels partly wrong"),
    "topics-missing": Cause("most topics of the training texts were never labelled", "labels partly wrong"),
    "rare-tags-as-0": Cause("three of five tags are unknown to the list, and become 0", "labels partly wrong"),
    "flipped-without-box": Cause("half of the pictures are mirrored, their boxes are not", "labels partly wrong"),
    "labels-inverted": Cause("training labels are inverted: 1 is absent", "numbered differently"),
    "teacher-of-other-classes": Cause("the teacher numbers the classes in another order", "numbered differently"),
    "signs-numbered-anew": Cause("training numbers the signs by another table", "numbered differently"),
    "val-vocabulary-anew": Cause("validation numbers its words by another table", "numbered differently"),
    "val-topics-in-another-order": Cause(
        "validation has the topics in another order",
        "numbered differently",
        "the model is fine, its validation loss is not",
    ),
    "columns-reversed-in-validation": Cause("validation has the columns in reverse", "prepared differently"),
    "val-scaled-twice": Cause("validation pictures are scaled twice", "prepared differently"),
    "val-boxes-in-pixels": Cause(
        "validation boxes are in pixels", "prepared differently", "the model is fine, its validation loss is not"
    ),
    "val-in-other-units": Cause("validation is in inches, training in centimetres", "prepared differently"),
    "val-not-normalised": shared("val-not-normalised"),
    "val-raw-counts": Cause("validation has raw counts, training their logarithms", "prepared differently"),
    "val-not-centred": Cause("validation clouds are not moved to their centre", "prepared differently"),
    "teacher-sees-raw-inputs": Cause("the teacher gets inputs that are not normalised", "prepared differently"),
    "val-tags-of-other-sentences": Cause(
        "validation tags belong to other sentences",
        "validation labels unrelated",
        "the model is fine, its validation loss is not",
    ),
    "val-labels-shuffled": Cause(
        "validation labels belong to other clouds",
        "validation labels unrelated",
        "the model is fine, its validation loss is not",
    ),
    "validation-in-training": shared("validation-in-training", "the validation loss is better than it should be"),
    "nan-example": shared("nan-example"),
    "rounded-inputs": Cause("training points are written with too few digits", "inputs lose their content"),
    "points-whole-numbers": Cause("training points are cast to whole numbers", "inputs lose their content"),
    "words-cut": Cause("nearly all training words are 'unknown'", "inputs lose their content"),
    "milliseconds": Cause("the time is in milliseconds: every tanh is at its end", "saturated by its inputs"),
    "part-not-in-optimizer": shared("part-not-in-optimizer"),
    "optimizer-of-a-copy": shared("optimizer-of-a-copy"),
    "cut-off": shared("cut-off"),
    "gate-cut-off": Cause("a detach keeps the gradient from the gate", "gradient cut off"),
    "bend-without-graph": Cause("the second derivative is taken without its graph", "gradient cut off"),
    "unregistered": shared("unregistered"),
    "gate-sees-nothing": Cause("the gate is given zeros", "input not used"),
    "places-forgotten": Cause("the positions are never added", "input not used"),
    "teacher-not-loaded": Cause("the teacher has random weights", "teacher at random"),
    "dead-units": shared("dead-units"),
    "micro-batches-lost": shared(
        "micro-batches-lost", "the gradients of all but the last micro-batch do nothing, which is only a little worse"
    ),
    "not-divided": shared("not-divided"),
    "never-zeroed": shared("never-zeroed"),
    "erased": shared("erased"),
    "optimizer-rebuilt": shared("optimizer-rebuilt"),
    "rate-grows": shared("rate-grows"),
    "decayed-too-soon": shared("decayed-too-soon"),
    "horizon-in-epochs": shared("horizon-in-epochs", "the rate goes up and down where it should fall once"),
    "stepped-per-epoch": shared("stepped-per-epoch"),
    "eval-left-on": shared("eval-left-on", "running statistics stand still from the first validation on"),
    "validated-in-training-mode": shared("validated-in-training-mode", "the model is fine, its validation loss is not"),
    "batchnorm-momentum-0": shared("batchnorm-momentum-0"),
    "box-term-x1000": Cause("the term of the box weighs 1000 times too much", "loss term outweighs the others"),
    "softness-x10000": Cause("the term of the gate weighs 10000 times too much", "loss term outweighs the others"),
    "start-x1e-6": Cause("the start weighs a millionth beside the equation", "loss term outweighs the others"),
    "start-forgotten": Cause("the start of the swing is not in the loss", "loss term missing"),
    "soft-term-forgotten": Cause("the teacher's term has a weight of 0", "loss term missing"),
    "stretch-forgotten": Cause("the stretched space is not in the loss", "loss term missing"),
    "box-sign": Cause("the term of the box is subtracted", "wrong sign"),
    "stretch-sign": Cause("the stretched space is subtracted", "wrong sign"),
    "density-sign": Cause("the log-likelihood is minimised", "wrong sign"),
    "margin-sign": Cause("the margin is subtracted", "wrong sign"),
    "near-and-far-swapped": Cause("near and far are swapped", "wrong sign"),
    "reward-sign": Cause("rewards have the wrong sign", "wrong sign"),
    "stiffness-sign": Cause("the stiffness has the wrong sign", "wrong formula"),
    "softmax-twice": shared("softmax-twice"),
    "sigmoid-twice": Cause("probabilities are squashed again by the loss", "squashed twice"),
    "softmax-over-batch": shared("softmax-over-batch"),
    "softmax-over-time": Cause(
        "the softmax runs over the words, not the tags",
        "softmax over the wrong axis",
        "the tags are ranked nearly as well, but their probabilities mean nothing",
    ),
    "gate-over-batch": Cause("the gate's softmax runs over the batch", "softmax over the wrong axis"),
    "attention-over-queries": Cause(
        "the attention sums to one over the queries",
        "softmax over the wrong axis",
        "what later signs ask for leaks into earlier ones, so the validation loss is too good",
    ),
    "time-axis-first": Cause("batch_first is missing: sentences are read across the batch", "wrong axis"),
    "maximum-over-batch": Cause("the maximum is over the batch, not the points", "wrong axis"),
    "normalised-over-batch": Cause(
        "embeddings are normalised over the batch",
        "wrong axis",
        "neighbours are still right in a large batch, but a place depends on who else is there",
    ),
    "padding-learned": shared("padding-learned", "the words are tagged as well, but half of the loss is about padding"),
    "mask-inverted": shared("mask-inverted"),
    "never-alternates": Cause("the couplings all move the same coordinate", "wrong mask"),
    "mask-transposed": Cause(
        "the causal mask is transposed: later signs are seen",
        "target is visible",
        "held-out numbers are too good: no text can be written with it",
    ),
    "sees-later-signs": Cause(
        "there is no causal mask", "target is visible", "held-out numbers are too good: no text can be written with it"
    ),
    "not-moved-on": Cause("the target is the input, not the next sign", "wrong target"),
    "positive-is-the-anchor": Cause("the near one of a triplet is the anchor itself", "target is visible"),
    "far-ignored": Cause("only near pairs are in the loss: one place fits all", "collapse"),
    "first-expert-favoured": Cause("a bias of 25 gives the first expert everything", "collapse"),
    "root-of-zero": shared("root-of-zero"),
    "softmax-for-sigmoid": Cause("several topics share one softmax", "wrong formula"),
    "probabilities-for-logarithms": Cause(
        "kl_div is given probabilities, not their logarithms",
        "wrong formula",
        "the classes are ranked as well, but the chances are far from the teacher's and the loss is below zero",
    ),
    "mean-differentiated": Cause("the mean is differentiated: slopes are too small", "wrong formula"),
    "values-of-all-moves": Cause("the value of one move is learned for all four", "wrong formula"),
    "broadcast": shared("broadcast"),
    "least-for-best": Cause("a minimum stands where the maximum should", "wrong formula"),
    "relu-on-scores": Cause("a ReLU behind the last layer: no score is negative", "output cannot reach the target"),
    "output-out-of-reach": Cause("0.3 times a tanh cannot be a box", "output cannot reach the target"),
    "kinked": Cause("ReLU has no second derivative to learn from", "activation without curvature"),
    "target-never-synced": Cause("the target network stays as it began", "target network stands still"),
    "never-explores": Cause("no move is ever random", "no exploration"),
    "optimizer-lost": shared("optimizer-lost", "the moments build up again: hardly worse at the end"),
    "schedule-restarted": shared("schedule-restarted", "the run ends at half of its peak rate"),
    "data-restarted": shared("data-restarted", "a part of the data is seen more often"),
    "old-weights": shared("old-weights"),
    "partly-loaded": shared("partly-loaded"),
}
