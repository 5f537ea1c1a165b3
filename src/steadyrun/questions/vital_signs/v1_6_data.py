"""V1.6: does new data arrive?"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.curves import Floats
from steadyrun.signals.declared_schedule import number
from steadyrun.signals.facts import LEARNED
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.progress import Levels, levels
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    if not run.has("batch_hash") and (same := _same_inputs(run, limit)) is not None:
        return same
    hashes = run.points("batch_hash").values
    if len(hashes) < limit["fewest"]:
        raise MissingSignal("batch_hash", f"recorded batches: {len(hashes)}, needed: {limit['fewest']:g}")
    different = len(np.unique(hashes))
    again = hashes[1:] == hashes[:-1]
    longest = _longest(again) + 1
    expected = [number(loader.get("batches")) or 0.0 for loader in run.listed("loaders")]
    measured = {"batches": float(different), "in_a_row": float(longest), "again": float(np.mean(again))}
    words = f"{len(hashes):,} steps used {different:,} different {'batch' if different == 1 else 'batches'}"
    if expected and max(expected) > limit["missed"] * different and len(hashes) > limit["missed"] * different:
        return Finding("few-of-many", f"{words}, but the loader has {max(expected):,.0f}.", measured)
    if different > 1 and longest >= limit["in_a_row"] and different > limit["few"]:
        message = f"One batch came {longest} times in a row (limit {limit['in_a_row']:g}). {words}."
        return Finding("stuck", message, measured, int(np.argmax(again)))
    if (learned := _by_heart(run, limit, max(expected, default=0.0))) is not None:
        return Finding("by-heart", learned, measured)
    if different <= limit["few"] and len(hashes) > limit["rounds"] * different and not expected:
        return Finding("few", f"{words}.", measured)
    return Finding("moves-on", f"{words}.", measured)


def _same_inputs(run: Signals, limit: Limits) -> Finding | None:
    """If no batches were recorded: a model that gets exactly the same inputs in nearly every sampled step."""
    mean, std, val = run.maybe("inputs/mean"), run.maybe("inputs/std"), run.maybe("val_loss")
    if mean is None or std is None or val is None or len(mean) < limit["samples"] or float(std.values[0]) <= 0:
        return None
    same = _near(mean.values, limit["exact"] * std.values) & _near(std.values, limit["exact"] * std.values)
    known, loss = known_facts(run, limit), levels(run, "loss", limit["losses"])
    end = float(np.median(val.values[-max(1, len(val) // limit.count("last")) :]))
    if np.mean(same) < limit["most"] or known.moves_freely or _lost(loss, end, known.start) <= limit["lost"]:
        return None
    words = f"The model got the same inputs in {int(np.sum(same))} of {len(mean)} sampled steps"
    message = f"{words}. Training loss ends at {shown(loss.end)}, validation loss at {shown(end)}."
    return Finding("by-heart", message, {"batches": 1.0})


def _near(values: Floats, within: Floats) -> npt.NDArray[np.bool_]:
    return np.abs(values - np.median(values)) <= within


def _longest(flags: np.ndarray) -> int:
    """The longest stretch of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]])))
    return int(np.max(edges[1::2] - edges[::2])) if len(edges) else 0


def _by_heart(run: Signals, limit: Limits, loaded: float) -> str | None:
    """A message if only a small part of the data is trained on, and memorised; else None."""
    examples, val = run.maybe("examples"), run.maybe("val_loss")
    if examples is None or val is None or not run.has("example_hash/train"):
        return None
    there_are = len(run.distinct("example_hash/train"))
    held_out = len(run.distinct("example_hash/val")) if run.has("example_hash/val") else 0
    rounds = float(np.sum(examples.values)) / max(1, there_are)
    beside = max(held_out, loaded * float(np.median(examples.values)))
    if rounds < limit["rounds"] or beside < limit["larger"] * there_are:
        return None
    loss = levels(run, "loss", limit["losses"])
    end = float(np.median(val.values[-max(1, len(val) // limit.count("last")) :]))
    known = known_facts(run, limit)
    if known.moves_freely or _lost(loss, end, known.start) <= limit["lost"]:
        return None
    where = "validation" if held_out >= beside else "the loader"
    words = f"Only {there_are:,} examples were trained on, {rounds:.0f} times each, but {where} has {beside:,.0f}"
    return f"{words}. Training loss ends at {shown(loss.end)}, validation loss at {shown(end)}."


def _lost(loss: Levels, end: float, start: str) -> float:
    """The fraction of the training loss's fall that validation lacks; on a log scale if training started at random.

    A training loss near zero is far below validation at any level. Fine-tuning on a few examples may end like that.
    """
    lost = (end - loss.end) / (loss.start - loss.end) if loss.start > loss.end else 0.0
    if start == LEARNED or min(loss.end, end) <= 0 or loss.start <= loss.end:
        return lost
    return max(lost, math.log(end / loss.end) / math.log(loss.start / loss.end))


_EXPERIMENT = "Print the example indices of ten consecutive batches: they must differ."

QUESTION = Question(
    code="V1.6",
    name="new data arrives",
    asks="Do new batches arrive, with no repetition beyond epochs?",
    why="A loop that gets the same few batches memorises them, and its loss looks excellent.",
    needs=("batch_hash",),
    panel=1,
    thresholds=(
        LOSSES,
        Threshold(
            name="fewest",
            value=20,
            unit="steps",
            meaning="with fewer batches the question is not answered",
            seed="",
            decision="a small data set repeats by then",
        ),
        Threshold(
            name="samples",
            value=8,
            unit="sampled steps",
            meaning="how many sampled steps are needed to compare inputs, if batches are not recorded",
            seed="",
            decision="the first hundred steps have this many",
        ),
        Threshold(
            name="exact",
            value=1e-5,
            unit="standard deviations",
            meaning="how far the mean and the standard deviation of equal inputs may differ",
            seed="",
            decision="rounding; two different batches differ by a hundredth or more",
        ),
        Threshold(
            name="most",
            value=0.6,
            unit="fraction of the sampled steps",
            meaning="in how many of them the inputs must be the same",
            seed="",
            decision="in some steps a validation pass with gradients comes first",
        ),
        Threshold(
            name="in_a_row",
            value=3,
            unit="times",
            meaning="how often one batch may come in a row",
            seed="",
            decision="the last batch of an epoch may be the first of the next: twice in a row, not three times",
            of="in_a_row",
        ),
        Threshold(
            name="few",
            value=4,
            unit="batches",
            meaning="a data set with at most this many batches repeats at once",
            seed="",
            decision="full-batch training has one",
        ),
        Threshold(
            name="rounds",
            value=20,
            unit="passes over the data",
            meaning="fewer are ordinary epochs",
            seed="",
            decision="a short trial on a few batches repeats them less often",
        ),
        Threshold(
            name="larger",
            value=4,
            unit="times the training examples",
            meaning="validation or the loader has at least this many examples if training sees too little of the data",
            seed="",
            decision="most splits favour training; a task that trains on 30% of the data has 2.3 times",
        ),
        Threshold(
            name="lost",
            value=0.5,
            unit="of the fall of the training loss, on a log scale if training started at random",
            meaning="if validation lacks more of this fall, the training data is memorised",
            seed="",
            decision="with enough data, validation follows; on a log scale the limit is the geometric mean of start "
            "and end",
        ),
        Threshold(
            name="last",
            value=5,
            unit="equal parts of the validations",
            meaning="the median of the last part is the end",
            seed="",
            decision="as in V1.3",
        ),
        Threshold(
            name="missed",
            value=3,
            unit="times",
            meaning="how many times more batches a loader may have than were used",
            seed="",
            decision="a resumed or short run uses part of its data, once",
        ),
    ),
    outcomes=(
        Outcome(name="moves-on", answer=PASS, meaning="new batches arrive"),
        Outcome(
            name="few",
            answer=NOTE,
            meaning="all steps use the same few batches",
            fix="No action is needed for an overfitting test; otherwise take batches from the loader inside the loop.",
        ),
        Outcome(
            name="few-of-many",
            answer=SUSPECT,
            meaning="the loop reuses a few of the loader's batches",
            fix="Take the batch from the loader inside the loop, not before it.",
            experiment=_EXPERIMENT,
            may_pass=True,
        ),
        Outcome(
            name="by-heart",
            answer=SUSPECT,
            meaning="the model memorises a small part of the data",
            fix="Look for a limit left over from debugging, a batch taken before the loop, or a sampler over part of "
            "the data.",
            experiment="Print the length of the training set and the indices of ten batches: both must cover the "
            "data. Train for as many steps on all of it: validation must follow.",
            may_pass=True,
            explains=("C4.2", "S1.3", "V1.3", "V1.4"),
        ),
        Outcome(
            name="stuck",
            answer=SUSPECT,
            meaning="one batch is trained on several times in a row",
            fix="Check the loader's prefetching, and that the loop calls next() once per step.",
            experiment=_EXPERIMENT,
        ),
    ),
    find=find,
    always=True,
)
