"""C4.2: the validation loss stays close to the training loss, and its examples are unseen."""

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
from steadyrun.text import percent, shown


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
    then, now = shown(at * gap.unit), shown(last * gap.unit)
    now = "" if then == now else f"{now} "
    facts = f"The gap (validation minus training loss) is {then} at step {step} and {now}at the end"
    best, end = shown(gap.val.values[gap.best]), shown(gap.val.values[-1])
    course = f"Validation is {best} at its best (step {gap.val.step_at(gap.best)}) and {end} at the end"
    if gap.best == len(gap.val) - 1:
        course = f"Validation is still at its best at the end, {end}"
    start = max(progress(run, limit["losses"]).start, float(gap.val.values[0]))
    learned = float(gap.val.values[gap.best]) < start
    broken = float(gap.val.values[-1]) > limit["absurd"] * abs(start)  # overfitting does not reach this
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
            return Finding("metric-improves", f"{course}, but {better}.", measured, gap.val.step_at(gap.best))
        rise = f"Smoothed, it rose by {percent(gap.rise)} (limit {limit['rise']:.0%})"
        message = f"{course}. {rise} while the training loss fell."
        return Finding("overfitting", message, measured, gap.val.step_at(gap.best))
    if max(at, last) > limit["gap"]:
        return Finding("gap", f"{facts} (limit {shown(limit['gap'] * gap.unit)}). {course}.", measured, step)
    if last < -limit["below"] and (noisier := _noisier(run, limit)) is not None:
        return noisier
    if last < -limit["below"]:
        message = f"{facts} (expected at least {shown(-limit['below'] * gap.unit)}). {_in_both(shared)}."
        return Finding("below", message, measured, step)
    if shared is not None and shared.shared:
        return Finding("few-shared", f"{_in_both(shared)}.", measured, step)
    index, times = gap.stands_out
    if times > limit["spike"]:
        where, value = gap.val.step_at(index), shown(gap.val.values[index])
        message = f"Validation is {value} at step {where}, {shown(times)} times the validations before and after it."
        return Finding("spike", message, measured | {"stands_out": times}, where)
    if abs(last) > limit["close"]:
        return Finding(
            "apart", f"{facts} (normally up to {shown(limit['close'] * gap.unit)}). {course}.", measured, step
        )
    return Finding("pass", f"{facts} (limit {shown(limit['close'] * gap.unit)}).", measured, step)


def _in_both(shared: Overlap | None) -> str:
    if shared is None:
        return "Whether both sets share examples is not known, because hashes of the examples are not recorded"
    are = "is" if shared.shared == 1 else "are"
    return f"{shared.shared} of {shared.compared} validation examples {are} also in the training set"


def _leak(shared: Overlap, limit: float) -> Finding:
    message = (
        f"{shared.shared} of {shared.compared} validation examples ({percent(shared.share)}, limit {limit:.0%}) "
        "are also in the training set, so the validation loss cannot be trusted."
    )
    return Finding("leak", message, {"overlap": shared.share})


def _noisier(run: Signals, limit: Limits) -> Finding | None:
    """A training loss that stays above validation without a known reason that makes training harder."""
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
        f"Training ends at {shown(loss.end)}, validation at {shown(float(late[-1]))} and never above {shown(end)} in "
        f"the second half (a guess has {shown(known.guess)}). Dropout, smoothing, augmentation and class balance do "
        "not explain it."
    )
    return Finding("noisier", message, {"harder": harder}, val.step_at(-1))


def _entropy_of_validation(run: Signals) -> float | None:
    """The loss of guessing by the class frequencies of validation; None if it has no class labels."""
    data = [event.fields.get("data") for event in run.events("validation")]
    known = [number(facts.get("labels_entropy")) for facts in data if isinstance(facts, dict)]
    return known[-1] if known else None


def _comes_again(run: Signals, limit: Limits) -> bool:
    """Whether the same examples repeat unchanged: neither inputs nor labels are drawn anew."""
    examples = run.maybe("examples")
    if examples is None or not run.has("example_hash/train"):
        return False
    there_are, changed = max(1, len(run.distinct("example_hash/train"))), run.maybe("targets_changed")
    if changed is not None and np.any(changed.values > 0):
        return False
    return bool(float(np.sum(examples.values)) >= limit["rounds"] * there_are)


def _other_cause(run: Signals, limit: Limits) -> bool:
    """Whether another question knows a better reason: other data in validation, few examples, memorised labels."""
    others = (a5_6_input_preparation, v1_6_data, s1_4_labels)
    return any(limit.ask(other.QUESTION, run).kind in (FAULT, SUSPECT) for other in others)


def _all_different(run: Signals, limit: Limits) -> bool:
    """Whether the first training examples do not repeat: then chance does not explain examples in both sets.

    Any two samples share short windows, pairs of words and the inputs of a small task.
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
    """A few batches that repeat on purpose: an overfitting test, or a graph whose other nodes validate."""
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
    """The index of the last validation at or before the mark; of the first if all come later."""
    spacing = run.points("loss").spacing
    return max(0, int(np.searchsorted(gap.val.steps, by * max(1.0, spacing), side="right")) - 1)


QUESTION = Question(
    code="C4.2",
    name="validation against training",
    asks="Is the validation loss within 0.5 of the training loss, and are the validation examples unseen?",
    why="A widening gap means that the model memorises. A validation loss well below training means that validation "
    "is too easy, most often because its examples are also in the training set.",
    needs=("loss", "val_loss", "example_hash/train", "example_hash/val"),
    panel=1,
    thresholds=(
        Threshold(
            name="absurd",
            value=10,
            unit="times the untrained loss",
            meaning="a higher validation loss is broken, not overfitted",
            seed="",
            decision="models that memorised their training data end at two to five times the loss of a guess",
        ),
        Threshold(
            name="close",
            value=0.5,
            unit="nats of V = 512",
            meaning="gap that passes",
            seed="0.5",
            decision="the rule of thumb, in units of the first loss",
            of="last_gap",
        ),
        Threshold(
            name="gap",
            value=1.0,
            unit="nats of V = 512",
            meaning="gap that is a note",
            seed="1.0 by step 500",
            decision="healthy runs reach 1.16 and still improve: a fault only together with a rise",
            of="gap",
        ),
        Threshold(
            name="rise",
            value=0.1,
            unit="fraction of the best validation loss",
            meaning="how far validation may rise from its best",
            seed="",
            decision="healthy language models rise by up to 7%; a VAE whose objective changes rises more, but without "
            "a gap; public logs of overfitting rise by 16% and more",
            of="rise",
        ),
        Threshold(
            name="noise",
            value=5,
            unit="times the noise of validation",
            meaning="how far it must also have risen",
            seed="",
            decision="the lowest of many noisy validations is low by chance, and the last ones lie above it",
        ),
        Threshold(
            name="chance",
            value=0.05,
            unit="probability",
            meaning="a rise since the best validation that chance gives more often does not count",
            seed="",
            decision="by chance four validations rise throughout in 1 of 24 orders; the rise must also be large and "
            "beyond noise",
        ),
        LOST_PART,
        Threshold(
            name="by",
            value=500,
            unit="steps",
            meaning="step at which the gap is measured",
            seed="step 500",
            decision="the rule of thumb; the last validation before it",
        ),
        Threshold(
            name="below",
            value=0.3,
            unit="nats of V = 512",
            meaning="how far validation may be below training",
            seed="0.3",
            decision="dropout and augmentation also explain it: a note",
            of="-last_gap",
        ),
        Threshold(
            name="harder",
            value=0.35,
            unit="of the fall of validation below a guess",
            meaning="how far training may stay above validation if no known reason makes it harder",
            seed="",
            decision="healthy runs with 10% of their labels drawn anew reach 0.12, an easy task with 20% of them "
            "0.32; half of the labels wrong gives 0.39 and 0.46",
            of="harder",
        ),
        Threshold(
            name="plain",
            value=0.02,
            unit="of the loss",
            meaning="how close the loss must be to a plain cross-entropy",
            seed="",
            decision="smoothing, class weights and other terms move it further",
        ),
        Threshold(
            name="balance",
            value=0.05,
            unit="of the entropy of the training labels",
            meaning="how far the entropy of the validation labels may differ from it",
            seed="",
            decision="classes that are balanced only in training make validation easier",
        ),
        Threshold(
            name="rounds",
            value=3,
            unit="passes through the data",
            meaning="how often the same examples must repeat before training is compared with validation",
            seed="",
            decision="augmented examples never repeat; by then a model begins to memorise correct labels",
        ),
        Threshold(
            name="validations",
            value=2,
            unit="validations",
            meaning="how many the second half must have",
            seed="",
            decision="a single validation may be low by chance",
        ),
        Threshold(
            name="spike",
            value=5,
            unit="times its neighbours",
            meaning="a validation this high stands out",
            seed="",
            decision="healthy public logs reach 1.15, a small classifier near zero 4.4; a broken evaluation reached "
            "409",
            of="stands_out",
        ),
        Threshold(
            name="overlap",
            value=0.1,
            unit="fraction of validation examples",
            meaning="validation examples that are also in the training set",
            seed="validation contains training items",
            decision="any collected data set has fewer duplicates",
            of="overlap",
        ),
        Threshold(
            name="compared",
            value=20,
            unit="validation examples",
            meaning="fewer do not prove a leak",
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
            meaning="how many of them must differ",
            seed="",
            decision="any two samples share short windows and pairs of words",
        ),
        Threshold(
            name="few_batches",
            value=10,
            unit="different batches",
            meaning="up to this many repeat on purpose",
            seed="",
            decision="an overfitting test, or a graph whose other nodes validate",
        ),
        Threshold(
            name="again",
            value=5,
            unit="times",
            meaning="how often each of them must repeat on average",
            seed="",
            decision="a short run may also have few batches",
        ),
        LOSSES,
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="validation stays close to training"),
        Outcome(
            name="apart",
            answer=NOTE,
            meaning="the validation loss is somewhat above the training loss",
            fix="No action is needed while the validation loss falls.",
        ),
        Outcome(
            name="gap",
            answer=NOTE,
            meaning="the validation loss is far above the training loss",
            fix="Train on while the validation loss falls. Check that both sets come from the same data and that both "
            "losses are computed in the same way.",
        ),
        Outcome(
            name="metric-improves",
            answer=NOTE,
            meaning="the validation loss rises while the validation metric improves",
            fix="Choose the checkpoint by the metric, and calibrate the probabilities if you use them: the model "
            "becomes overconfident.",
        ),
        Outcome(
            name="below",
            answer=NOTE,
            meaning="the validation loss is far below the training loss",
            fix="Compute the training loss in evaluation mode: dropout and augmentation raise it. If it stays far "
            "above, look for examples that are in both sets.",
        ),
        Outcome(
            name="spike",
            answer=NOTE,
            meaning="a single validation stands out",
            fix="Validate that checkpoint again. If the loss is high again, look at its batches; if not, check that "
            "model.eval() is called before every validation.",
        ),
        Outcome(
            name="few-shared",
            answer=NOTE,
            meaning="some validation examples are also in the training set",
            fix="Remove these examples from one of the two sets.",
        ),
        Outcome(
            name="noisier",
            answer=SUSPECT,
            meaning="some of the training labels are wrong",
            fix="Look at the training examples with the highest loss: correct or drop wrong labels, and fix the "
            "preparation step that makes them.",
            experiment="Evaluate the training set in evaluation mode and sort it by loss. If the worst examples have "
            "wrong labels, they are the cause; if they are hard but correct, training is harder on purpose.",
            may_pass=True,
        ),
        Outcome(
            name="overfitting",
            answer=FAULT,
            meaning="the model overfits: validation rises while training falls",
            fix="Keep the checkpoint with the best validation. For the next run use more data, more weight decay or "
            "dropout, or a smaller model.",
            may_pass=True,
        ),
        Outcome(
            name="leak",
            answer=FAULT,
            meaning="validation examples are also in the training set",
            fix="Remove duplicates, split once with a fixed seed, and save the split. Oversample and augment only "
            "after it.",
            explains=("S1.1", "S1.3"),
            proved=True,
        ),
    ),
    find=find,
)
