"""The bugs of the fourth fleet: what is wrong, the family of the cause, and what damage it does.

As in the third fleet; damage.json has the means of two seeds, which `python -m diagnosis.fourth.quality` writes. A bug
that an earlier fleet has as well has the name that it has there, and so its words and its family.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from diagnosis.fourth.families import ANSWERS
from diagnosis.second import causes as second
from diagnosis.second.causes import in_words
from diagnosis.third import causes as third

DAMAGE: dict[str, dict[str, dict[str, float | None]]] = json.loads(
    Path(__file__).with_name("damage.json").read_text("utf-8")
)
VALIDATION_ONLY = "the model is fine, its validation loss is not"


@dataclass(frozen=True)
class Cause(second.Cause):
    """What is wrong in a program that has the bug, by the families of this fleet."""

    answers: ClassVar[dict[str, tuple[str, ...]]] = ANSWERS


def damage(bug: str) -> str:
    """Held-out scores and validation losses without the bug and with it, and why it is wrong if they look fine."""
    return in_words(DAMAGE[bug], CAUSES[bug].fine)


def shared(bug: str, fine: str = "") -> Cause:
    """A bug that an earlier fleet has as well."""
    before = second.CAUSES.get(bug) or third.CAUSES[bug]
    return Cause(before.words, before.family, fine)


CAUSES: dict[str, Cause] = {
    "rate-x15": Cause("the learning rate is 15 times too high", "rate too high"),
    "rate-a-150th": Cause("the learning rate is 150 times too low", "rate too low"),
    "decay-of-2": Cause("the weight decay is 2", "decay out of range"),
    "dropout-of-85": Cause("dropout of 0.85", "dropout out of range"),
    "smoothing-of-70": Cause("label smoothing of 0.7", "smoothing out of range"),
    "clip-at-1e-3": Cause("gradients are clipped to a norm of 1e-3, under SGD", "clip out of range"),
    "epsilon-of-0.1": Cause("Adam's epsilon is 0.1", "optimizer setting out of range"),
    "momentum-of-0.995": Cause("momentum of 0.995", "optimizer setting out of range"),
    "beta1-of-0.998": Cause("Adam's first beta is 0.998", "optimizer setting out of range"),
    "betas-swapped": shared("betas-swapped"),
    "warmup-beyond-the-end": shared("warmup-beyond-the-end"),
    "horizon-of-a-tenth": Cause("the schedule ends after a tenth of the run", "schedule too short"),
    "start-x5": Cause("matrices start 5 times too wide", "start too wide"),
    "start-x12": shared("start-x12"),
    "start-a-hundredth": Cause("matrices start at a hundredth of their width", "start without differences"),
    "start-at-zero": shared("start-at-zero"),
    "weights-in-bf16": shared("weights-in-bf16"),
    "same-batch": shared("same-batch"),
    "tiny-data": shared("tiny-data"),
    "ten-signals": Cause("ten signals, each of them 120 times", "too few examples"),
    "sixteen-texts": Cause("sixteen texts, each of them twenty times", "too few examples"),
    "thirty-two-houses": Cause("32 houses, each of them 64 times", "too few examples"),
    "same-world": Cause("the seed is set in every step: the same contexts come again", "same data again"),
    "sorted": shared("sorted"),
    "labels-permuted": shared("labels-permuted"),
    "half-of-the-labels-wrong": shared("half-of-the-labels-wrong"),
    "targets-of-the-last-batch": Cause("the targets are those of the batch before", "labels unrelated"),
    "times-of-others": Cause("the times belong to other patients", "labels unrelated"),
    "relevance-of-the-next-query": Cause("the judgements are off by one query", "labels unrelated"),
    "relevance-in-any-order": Cause("documents were sorted, their judgements were not", "labels unrelated"),
    "first-is-best": Cause("the place in the list is the label", "order of the list as label"),
    "places-of-other-pictures": Cause("the places belong to other pictures", "labels unrelated"),
    "same-place-for-all": Cause("one row of the table is read for every picture", "one class only"),
    "documents-of-others": Cause("the documents belong to other queries", "labels unrelated"),
    "documents-of-the-next-batch": Cause("the documents are off by one batch", "labels unrelated"),
    "same-document-everywhere": Cause("400 queries have one and the same document", "labels partly wrong"),
    "rewards-of-other-arms": Cause("rewards are attached to other contexts", "labels unrelated"),
    "values-of-other-rows": Cause("the values belong to other rows, the classes do not", "labels unrelated"),
    "mirrored-without-places": Cause("half of the pictures are mirrored, the places are not", "labels partly wrong"),
    "left-as-ended": Cause("those who only left count as ended", "labels partly wrong"),
    "ended-and-left-swapped": Cause("the mark of those who ended is inverted", "numbered differently"),
    "down-and-across-swapped": Cause("training has (across, down) for (down, across)", "wrong target"),
    "targets-whole-numbers": Cause("training targets are cast to whole numbers", "labels partly wrong"),
    "prices-in-logarithms": Cause("training prices are logarithms, validation prices are not", "prepared differently"),
    "signs-numbered-anew": shared("signs-numbered-anew"),
    "val-classes-sorted-otherwise": Cause("validation numbers the classes in another order", "numbered differently"),
    "val-marks-in-another-order": Cause("validation has the marks in another order", "numbered differently"),
    "val-0-is-best": Cause("in validation 0 is the best, in training 3", "numbered differently", VALIDATION_ONLY),
    "val-vocabulary-anew": shared("val-vocabulary-anew"),
    "val-words-from-another-list": Cause("validation numbers its words by another list", "numbered differently"),
    "val-in-other-units": shared("val-in-other-units"),
    "val-not-normalised": shared("val-not-normalised"),
    "val-in-percent": Cause("validation targets are in percent", "prepared differently", VALIDATION_ONLY),
    "val-padded-in-front": Cause("validation is padded in front, training at the end", "prepared differently"),
    "val-negative": Cause("validation pictures are negatives", "prepared differently"),
    "val-in-thousands": Cause("validation prices are 1000 times as large", "prepared differently", VALIDATION_ONLY),
    "val-in-raw-units": Cause("validation values are not normalised", "prepared differently", VALIDATION_ONLY),
    "columns-reversed-in-validation": shared("columns-reversed-in-validation"),
    "validates-on-training": Cause(
        "the validation loader reads the training rows",
        "validation in training",
        "the validation loss says nothing about other rows",
    ),
    "nan-example": shared(
        "nan-example", "the slope of a maximum is not hurt by it, but the loss of a whole batch is not finite"
    ),
    "missing-as-minus-999": Cause("missing values of training are -999", "missing values as numbers"),
    "stored-as-whole-numbers": Cause("training signals are rounded to whole numbers", "inputs lose their content"),
    "words-cut": shared("words-cut"),
    "reshaped-not-transposed": Cause("a reshape stands where a transpose should: signals are mixed", "wrong axis"),
    "column-of-the-answer": Cause("the price itself is a column of the training inputs", "target is visible"),
    "part-not-in-optimizer": shared("part-not-in-optimizer"),
    "head-replaced": Cause("a head was replaced after the optimizer had been built", "part outside the optimizer"),
    "optimizer-of-a-copy": shared("optimizer-of-a-copy"),
    "cut-off": shared("cut-off"),
    "documents-cut-off": Cause("a detach keeps the gradient from the tower of documents", "gradient cut off"),
    "unregistered": shared("unregistered"),
    "trunk-frozen": Cause("the trunk is frozen as it began", "frozen at random"),
    "base-not-loaded": Cause(
        "the names do not fit, so the frozen base stays random",
        "frozen at random",
        "the adapters make up for most of it, but what was trained before is lost",
    ),
    "adapters-frozen": Cause("the adapters are frozen with the base, only the head learns", "frozen by mistake"),
    "adapters-not-called": Cause("the forward pass leaves the adapters out", "part not used"),
    "both-factors-zero": Cause("both factors of the adapters start at zero: no gradient", "start without differences"),
    "adapters-x300": Cause("the adapters are scaled by 300", "adapter scale out of range"),
    "query-not-used": Cause("the query is given as zeros", "input not used"),
    "marks-not-read": Cause("the marks are given as zeros", "input not used"),
    "dead-units": shared("dead-units"),
    "forgets-at-once": Cause("the decays start so low that nothing is kept", "vanishing gradient"),
    "grows-in-time": Cause("the factors of the state are above one", "recurrence grows"),
    "hidden-never-carried": Cause("every chunk begins with an empty hidden state", "hidden state lost"),
    "rows-shuffled-between-chunks": Cause(
        "rows are shuffled between chunks: the hidden state is another text's",
        "hidden state of other data",
        "a chunk is long enough to find out what a text is about, so it is only a little worse",
    ),
    "micro-batches-lost": shared(
        "micro-batches-lost", "the gradients of all but the last micro-batch do nothing, which is only a little worse"
    ),
    "not-divided": shared("not-divided", "the rate is in effect four times as high, which this run bears"),
    "never-zeroed": shared(
        "never-zeroed", "Adam divides the sum of all gradients by its own size, so that some learn as well"
    ),
    "zeroed-once-an-epoch": Cause("gradients are zeroed once an epoch", "gradients kept"),
    "stepped-once-an-epoch": Cause(
        "the optimizer steps once an epoch, by an indentation", "optimizer steps too seldom"
    ),
    "erased": shared("erased"),
    "optimizer-rebuilt": shared(
        "optimizer-rebuilt", "Adam has no memory: every step is one of signs, only a little worse"
    ),
    "clipped-by-value": Cause("gradients are clipped to 1e-9 by value", "clip out of range"),
    "rate-grows": shared("rate-grows"),
    "decayed-too-soon": shared("decayed-too-soon"),
    "decayed-at-every-batch": Cause("a decay meant for epochs is taken at every batch", "schedule stepped too often"),
    "horizon-in-epochs": shared("horizon-in-epochs", "the rate goes up and down where it should fall once"),
    "eval-left-on": shared("eval-left-on", "running statistics stand still from the first validation on"),
    "validated-in-training-mode": shared("validated-in-training-mode", VALIDATION_ONLY),
    "batchnorm-momentum-0": shared("batchnorm-momentum-0"),
    "average-never-updated": shared("average-never-updated"),
    "softmax-twice": shared("softmax-twice"),
    "scores-squashed": Cause("a sigmoid before the loss, which has one", "squashed twice"),
    "sigmoid-first": Cause("a sigmoid before the cross-entropy", "squashed twice"),
    "softmax-over-marks": Cause("a softmax over the marks at every pixel", "softmax over the wrong axis"),
    "softmax-over-time": Cause("the softmax runs over the time, not the signs", "softmax over the wrong axis"),
    "normalised-over-batch": shared("normalised-over-batch", third.CAUSES["normalised-over-batch"].fine),
    "mean-of-the-batch": Cause("a mean over the batch stands before the head", "wrong axis"),
    "time-axis-first": shared("time-axis-first"),
    "read-across-the-batch": Cause("texts are read across the batch", "wrong axis"),
    "maps-averaged": Cause("the maps of all marks are averaged before they are compared", "wrong formula"),
    "broadcast": shared("broadcast"),
    "padding-read": Cause("the state is read at the end of the padding", "padding is learned"),
    "padding-attended": Cause(
        "padding is attended to",
        "padding is learned",
        "the answer to a sentence depends on how far it is padded, which hardly matters here",
    ),
    "padding-averaged": Cause(
        "padding counts in the mean over the words",
        "padding is learned",
        "the place of a text depends on how far it is padded, which is only a little worse here",
    ),
    "mask-inverted": shared("mask-inverted"),
    "sees-ahead": Cause(
        "the convolutions are padded on both sides: the next value is seen",
        "target is visible",
        "the validation loss is too good: nothing can be foretold with it",
    ),
    "not-moved-on": shared("not-moved-on"),
    "output-out-of-reach": Cause(
        "a last activation keeps the output from the targets", "output cannot reach the target"
    ),
    "spots-too-narrow": Cause("the spots are narrower than a pixel: targets are zero", "targets nearly empty"),
    "spread-forgotten": Cause("the logarithm of the spread is not in the loss", "loss term missing"),
    "spread-sign": Cause("the spread has the wrong sign in the exponent", "wrong sign"),
    "spread-by-relu": Cause("a deviation made by a ReLU is zero, and its logarithm taken", "logarithm of zero"),
    "not-by-time": Cause("patients are not sorted by time before the sum", "wrong formula"),
    "those-before": Cause("sorted the wrong way: those already gone are at risk", "wrong formula"),
    "risk-sign": Cause("those at risk have the wrong sign", "wrong sign"),
    "one-patient-at-a-time": Cause("a batch of one: nobody to compare with", "batch too small for the loss"),
    "pairs-reversed": Cause("the less relevant is to be first", "wrong sign"),
    "pairs-of-equals": Cause("every pair counts, both ways", "wrong formula"),
    "no-pairs-no-mean": Cause("a query without pairs gives the mean of nothing", "mean of nothing"),
    "pinball-sign": Cause("the error has the wrong sign: quantiles are swapped", "wrong sign"),
    "least-of-both": Cause("a minimum stands where the maximum should", "wrong formula"),
    "temperature-of-20": Cause("a temperature of 20, not 0.1", "temperature out of range"),
    "temperature-of-0.002": Cause("a temperature of 0.002, not 0.1", "temperature out of range"),
    "only-the-right-one": Cause("only right pairs are in the loss: one place fits all", "collapse"),
    "distances-for-nearness": Cause(
        "nearness is taken for distance", "wrong sign", "the loss falls as it should, but the farthest is found"
    ),
    "reward-sign": shared("reward-sign"),
    "gain-not-centred": Cause("rewards are all far above zero and nothing is subtracted", "no baseline"),
    "chance-of-the-likeliest": Cause("the chance of the likeliest arm for that of the drawn one", "wrong formula"),
    "entropy-x3000": Cause("the entropy weighs 3000 times too much: arms stay random", "collapse"),
    "rewards-x1e5": Cause("rewards are in units that make them 1e5 times as large", "rewards not scaled"),
    "value-term-x1000": Cause("the term of the value weighs 1000 times too much", "loss term outweighs the others"),
    "values-in-raw-units": Cause("values of about 300 are not normalised", "loss term outweighs the others"),
    "class-term-forgotten": Cause("the class is not in the loss", "loss term missing"),
    "value-sign": Cause("the term of the value is subtracted", "wrong sign"),
    "log-of-values": Cause("the logarithm of the lowest value, which is zero", "logarithm of zero"),
    "optimizer-lost": shared("optimizer-lost", "the moments build up again: hardly worse at the end"),
    "schedule-restarted": shared("schedule-restarted", "the run ends at half of its peak rate"),
    "data-restarted": shared("data-restarted", "a part of the data is seen more often"),
    "old-weights": shared("old-weights"),
    "partly-loaded": shared("partly-loaded", "the rest of the run is long enough to learn that part again"),
}
