"""C4.2: does the validation loss keep up with the training loss, and is validation really unseen?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.audits import a5_6_input_preparation
from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.questions.past_its_best import LOST_PART
from steadyrun.questions.signatures import s1_4_labels
from steadyrun.questions.vital_signs import v1_6_data
from steadyrun.signals.batches import Overlap, overlap
from steadyrun.signals.curves import chance_of_rise
from steadyrun.signals.declared_schedule import number
from steadyrun.signals.fits import whole_loss
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.progress import levels, progress
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.success import improves_since
from steadyrun.signals.validation import Gap, gap_of
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    shared = _overlap(run)
    many = shared is not None and shared.compared >= limit["compared"] and shared.share >= limit["overlap"]
    if shared is not None and many and _all_different(run, limit) and not _on_purpose(run, limit):
        return _leak(shared, limit["overlap"])
    gap = gap_of(run, known_facts(run, limit), limit["losses"])
    early = _last_before(run, gap, limit["by"])
    at, last = float(gap.gaps[early]), float(gap.gaps[-1])
    measured = {"gap": at, "last_gap": last, "rise": gap.rise, "overlap": shared.share if shared else 0.0}
    step = gap.val.step_at(early)
    facts = (
        f"validation minus training loss {shown(at * gap.unit)} at step {step}, {shown(last * gap.unit)} at the end; "
        f"validation {shown(gap.val.values[gap.best])} at its best (step {gap.val.step_at(gap.best)}), "
        f"{shown(gap.val.values[-1])} at the end"
    )
    start = max(progress(run, limit["losses"]).start, float(gap.val.values[0]))
    learned = float(gap.val.values[gap.best]) < start
    broken = float(gap.val.values[-1]) > limit["absurd"] * abs(start)  # no overfitting makes that of a model
    if (
        learned
        and not broken
        and last > limit["gap"]
        and gap.rise > max(limit["rise"], limit["noise"] * gap.noise)
        and gap.lost > limit["part"]
        and gap.train_fell_since
        and chance_of_rise(gap.val.values[gap.best :]) < limit["chance"]
        and not _other_cause(run, limit)
    ):
        if better := improves_since(run, gap.val, gap.val.step_at(gap.best)):
            return Finding("metric-improves", f"{facts}; but {better}.", measured, gap.val.step_at(gap.best))
        message = f"{facts}: {gap.rise:.0%} above its best (limit {limit['rise']:.0%}) while training falls on."
        return Finding("overfitting", message, measured, gap.val.step_at(gap.best))
    if max(at, last) > limit["gap"]:
        return Finding("gap", f"{facts}: more than {shown(limit['gap'] * gap.unit)} apart.", measured, step)
    if last < -limit["below"] and (noisier := _noisier(run, limit)) is not None:
        return noisier
    if last < -limit["below"]:
        extra = "no shared example was found" if shared else "hashes of the examples were not recorded"
        message = f"{facts}: validation is lower by more than {shown(limit['below'] * gap.unit)}; {extra}."
        return Finding("below", message, measured, step)
    if shared is not None and shared.shared:
        return Finding(
            "few-shared",
            f"{shared.shared} of {shared.compared} validation examples were also trained on; {facts}.",
            measured,
            step,
        )
    index, times = gap.stands_out
    if times > limit["spike"]:
        where, value = gap.val.step_at(index), shown(gap.val.values[index])
        message = f"validation is {value} at step {where}, {shown(times)} times its neighbours; {facts}."
        return Finding("spike", message, measured | {"stands_out": times}, where)
    if abs(last) > limit["close"]:
        return Finding("apart", f"{facts}: more than {shown(limit['close'] * gap.unit)} apart.", measured, step)
    return Finding("pass", f"{facts} (within {shown(limit['close'] * gap.unit)}).", measured, step)


def _leak(shared: Overlap, limit: float) -> Finding:
    message = (
        f"{shared.shared} of {shared.compared} validation examples ({shared.share:.0%}, limit {limit:.0%}) "
        "were also trained on."
    )
    return Finding("leak", message, {"overlap": shared.share})


def _noisier(run: Signals, limit: Limits) -> Finding | None:
    """Training that stays above validation, though nothing that is known makes its examples harder."""
    known, loss, val = known_facts(run, limit), levels(run, "loss", limit["losses"]), run.points("val_loss")
    dropout = run.about("model").get("dropout")
    if known.guess is None or not isinstance(dropout, dict) or any(number(rate) for rate in dropout.values()):
        return None
    plain = whole_loss(run, limit["plain"], 0.0)  # no smoothing, no weights of classes, no other term
    if plain is None or not plain.startswith("fit/classes") or not _comes_again(run, limit):
        return None
    labels = _entropy_of_validation(run)
    if labels is None or abs(labels - known.guess) > limit["balance"] * known.guess:
        return None
    late = val.values[len(val) // 2 :]
    end = float(np.max(late))
    harder = (loss.end - end) / (known.guess - end) if end < known.guess else 0.0
    if len(late) < limit["validations"] or harder <= limit["harder"] or loss.end - end <= limit["noise"] * loss.error:
        return None
    message = (
        f"training ends at {shown(loss.end)}, validation at {shown(float(late[-1]))} and never above {shown(end)} in "
        f"the second half (a guess costs {shown(known.guess)}): training examples stay harder, without dropout, "
        "smoothing, augmentation or another balance of classes."
    )
    return Finding("noisier", message, {"harder": harder}, val.step_at(-1))


def _entropy_of_validation(run: Signals) -> float | None:
    """What guessing by the class frequencies of validation costs; None where it has no class labels."""
    data = [event.fields.get("data") for event in run.events("validation")]
    known = [number(facts.get("labels_entropy")) for facts in data if isinstance(facts, dict)]
    return known[-1] if known else None


def _comes_again(run: Signals, limit: Limits) -> bool:
    """Whether the very same examples come again and again: nothing is drawn anew in inputs or labels."""
    examples = run.maybe("examples")
    if examples is None or not run.has("example_hash/train"):
        return False
    there_are, changed = max(1, len(run.distinct("example_hash/train"))), run.maybe("targets_changed")
    if changed is not None and np.any(changed.values > 0):
        return False
    return bool(float(np.sum(examples.values)) >= limit["rounds"] * there_are)


def _other_cause(run: Signals, limit: Limits) -> bool:
    """Whether a better reason is known: other data in validation, a few examples all the time, labels by heart."""
    others = (a5_6_input_preparation, v1_6_data, s1_4_labels)
    return any(limit.ask(other.QUESTION, run).kind in (FAULT, SUSPECT) for other in others)


def _all_different(run: Signals, limit: Limits) -> bool:
    """Whether the first training examples come without repetition: then those common to both sets are no chance.

    Short windows, pairs of words and the inputs of a small world are common to any two samples.
    """
    examples = run.maybe("examples")
    if examples is None:
        return False
    first = examples.steps[: limit.count("looked_at")]
    drawn = float(np.sum(examples.values[: len(first)]))
    there_are = max(1, len(run.distinct("example_hash/train")))
    seen = run.how_many("example_hash/train", float(first[-1]))
    return drawn > 0 and seen >= limit["different"] * min(drawn, there_are)


def _on_purpose(run: Signals, limit: Limits) -> bool:
    """A few batches over and over: a model is made to learn them by heart, or a graph has its other nodes beside."""
    hashes = run.maybe("batch_hash")
    if hashes is None:
        return False
    return len(np.unique(hashes.values)) <= min(limit["few_batches"], len(hashes) / limit["again"])


def _overlap(run: Signals) -> Overlap | None:
    try:
        shared = overlap(run.distinct("example_hash/train"), run.distinct("example_hash/val"))
    except MissingSignal:
        return None
    return shared if shared.compared else None


def _last_before(run: Signals, gap: Gap, by: float) -> int:
    """The last validation at or before the mark; the first one where all come later."""
    spacing = run.points("loss").spacing
    return max(0, int(np.searchsorted(gap.val.steps, by * max(1.0, spacing), side="right")) - 1)


QUESTION = Question(
    code="C4.2",
    name="validation against training",
    asks="Is the validation loss within 0.5 of the training loss, and are the validation examples unseen?",
    why="A widening gap is memorising; a validation loss well below training means that validation is easier than it "
    "should be, most often because its examples were trained on.",
    needs=("loss", "val_loss", "example_hash/train", "example_hash/val"),
    panel=1,
    thresholds=(
        Threshold(
            name="absurd",
            value=10,
            unit="times the untrained loss",
            meaning="a validation loss beyond this is broken, not overfitted",
            seed="",
            decision="models that know their training data by heart end at two to five times the loss of a guess",
        ),
        Threshold(
            name="close",
            value=0.5,
            unit="nats of V = 512",
            meaning="gap that passes",
            seed="0.5",
            decision="as specified, in units of the first loss",
            of="last_gap",
        ),
        Threshold(
            name="gap",
            value=1.0,
            unit="nats of V = 512",
            meaning="gap that is worth a note",
            seed="1.0 by step 500",
            decision="healthy runs come to 1.16 and improve all the same: a fault only together with a rise",
            of="gap",
        ),
        Threshold(
            name="rise",
            value=0.1,
            unit="share of the best validation loss",
            meaning="how far validation has risen from its best",
            seed="",
            decision="healthy language models rise by up to 7%; a VAE whose objective moves rises more, but "
            "without a gap; "
            "public logs of overfitting rise by 16% and more",
            of="rise",
        ),
        Threshold(
            name="noise",
            value=5,
            unit="times the noise of validation",
            meaning="what it must have risen by, whatever the share",
            seed="",
            decision="the lowest of many noisy validations is low by chance, and the last ones lie above it",
        ),
        Threshold(
            name="chance",
            value=0.05,
            unit="probability",
            meaning="a rise of the validations since the best one that is more likely by chance proves nothing",
            seed="",
            decision="four that rise throughout are one order of 24; the rise must be large and beyond noise as well",
        ),
        LOST_PART,
        Threshold(
            name="by",
            value=500,
            unit="steps",
            meaning="when the gap is looked at",
            seed="step 500",
            decision="as specified; the last validation before it",
        ),
        Threshold(
            name="below",
            value=0.3,
            unit="nats of V = 512",
            meaning="validation below training",
            seed="0.3",
            decision="dropout and augmentation also explain it: a note",
            of="-last_gap",
        ),
        Threshold(
            name="harder",
            value=0.35,
            unit="of the fall of validation below a guess",
            meaning="how far training may stay above validation if nothing is known that makes it harder",
            seed="",
            decision="healthy runs with a tenth of their labels drawn anew come to 0.12, an easy task with a fifth of "
            "them to 0.32; half of the labels wrong gives 0.39 and 0.46",
            of="harder",
        ),
        Threshold(
            name="plain",
            value=0.02,
            unit="of the loss",
            meaning="how near the loss must be to a plain cross-entropy",
            seed="",
            decision="smoothing, class weights and other terms move it further",
        ),
        Threshold(
            name="balance",
            value=0.05,
            unit="of the entropy of the training labels",
            meaning="how far the entropy of the validation labels may be from it",
            seed="",
            decision="classes that are balanced in training alone make validation easier",
        ),
        Threshold(
            name="rounds",
            value=3,
            unit="times through the data",
            meaning="so often the same examples must come before training is compared with validation",
            seed="",
            decision="augmented examples never come again; by then right labels begin to be learned by heart",
        ),
        Threshold(
            name="validations",
            value=2,
            unit="validations",
            meaning="how many there must be in the second half",
            seed="",
            decision="one may be lucky",
        ),
        Threshold(
            name="spike",
            value=5,
            unit="times its neighbours",
            meaning="a single validation that stands out",
            seed="",
            decision="healthy public logs come to 1.15, a small classifier near zero to 4.4; a broken evaluation "
            "to 409",
            of="stands_out",
        ),
        Threshold(
            name="overlap",
            value=0.1,
            unit="share of validation examples",
            meaning="examples also trained on",
            seed="validation contains training items",
            decision="below it, the duplicates that any collected data set has",
            of="overlap",
        ),
        Threshold(
            name="compared",
            value=20,
            unit="validation examples",
            meaning="fewer prove nothing",
            seed="",
            decision="one or two shared examples would be a tenth of them",
        ),
        Threshold(
            name="looked_at",
            value=10,
            unit="steps",
            meaning="how many first steps are checked for repeated training examples",
            seed="",
            decision="a small data set repeats examples within a few steps",
        ),
        Threshold(
            name="different",
            value=0.93,
            unit="fraction of the first training examples",
            meaning="so many must be different",
            seed="",
            decision="short windows and pairs of words are common to any two samples",
        ),
        Threshold(
            name="few_batches",
            value=10,
            unit="different batches",
            meaning="at most this many are repeated on purpose",
            seed="",
            decision="a model is made to learn them by heart, or a graph has its other nodes beside",
        ),
        Threshold(
            name="again",
            value=5,
            unit="times",
            meaning="how often each of them must come on average",
            seed="",
            decision="a short run may have few batches as well",
        ),
        LOSSES,
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="validation keeps up with training"),
        Outcome(name="apart", answer=NOTE, meaning="validation is further from training than usual"),
        Outcome(name="gap", answer=NOTE, meaning="validation is far from training, but not rising"),
        Outcome(
            name="metric-improves",
            answer=NOTE,
            meaning="validation loss rises while the task's own metric improves: the model grows too certain",
            fix="Choose the checkpoint by the metric, and calibrate its probabilities if you use them.",
        ),
        Outcome(
            name="below", answer=NOTE, meaning="validation is below training: dropout, augmentation, or shared examples"
        ),
        Outcome(
            name="spike",
            answer=NOTE,
            meaning="one validation stands out and the next is back: look at that evaluation (its mode, its batches)",
        ),
        Outcome(
            name="few-shared",
            answer=NOTE,
            meaning="validation examples were also trained on: a few, or in a small world",
        ),
        Outcome(
            name="noisier",
            answer=SUSPECT,
            meaning="training examples stay harder than validation examples for no known reason: some of their labels "
            "are wrong",
            fix="Look at the training examples with the highest loss: correct or drop wrong labels, and find the "
            "step of the preparation that makes them.",
            experiment="Evaluate the training set in evaluation mode and sort it by loss. If the worst examples have "
            "wrong labels, that is the cause; if they are hard but right, training is harder on purpose.",
            may_pass=True,
        ),
        Outcome(
            name="overfitting",
            answer=FAULT,
            meaning="validation rises while training falls: the model memorises",
            fix="Keep the checkpoint of the best validation. Then more data, more weight decay (0.2), or a "
            "smaller model.",
            may_pass=True,
        ),
        Outcome(
            name="leak",
            answer=FAULT,
            meaning="validation contains examples that were trained on",
            fix="Split once, before any shuffling, oversampling or augmentation, and look for examples in both sets.",
            explains=("S1.1", "S1.3"),
            proved=True,
        ),
    ),
    find=find,
)
