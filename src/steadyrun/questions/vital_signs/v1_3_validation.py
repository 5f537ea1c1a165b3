"""V1.3: does validation follow training?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.questions.past_its_best import LOST_PART
from steadyrun.signals.curves import chance_of_rise
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.progress import Levels, levels
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.success import improves_since
from steadyrun.signals.validation import Gap, gap_of
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    known = known_facts(run, limit)
    if (alone := _alone(run, limit)) is not None:
        return alone
    loss = levels(run, "loss", limit["losses"])
    gap = gap_of(run, known, limit["losses"])
    values = gap.val.values
    if len(values) < limit["fewest"]:
        raise MissingSignal("val_loss", f"{len(values)} validations are recorded, {limit['fewest']:g} are needed")
    last = max(1, int(limit["last"] * len(values)))
    first, best, end = float(values[0]), gap.lowest, float(np.median(values[-last:]))
    measured = {"first": first, "best": best, "end": end, "train": loss.end}
    words = f"validation loss {shown(first)} at first, {shown(best)} at its best, {shown(end)} at the end"
    if (unmeasured := _not_measured(gap, loss, limit)) is not None:
        return unmeasured
    if not known.moves_freely and (worse := _worse(gap, loss, limit, end)):
        if better := improves_since(run, gap.val, gap.val.step_at(gap.best)):
            return Finding("follows", f"{words}, but {better}: the task itself improves.", measured)
        return Finding("worse-than-start", f"{words}{worse}", measured, gap.val.step_at(-1))
    if known.guess is not None and loss.steps >= limit["patience"]:
        measured["ratio"] = end / known.guess
        if end > (1 + limit["above"]) * known.guess and loss.end < limit["beats"] * known.guess:
            return Finding("worse-than-guess", f"{words}; {known.guess_why}.", measured, gap.val.step_at(-1))
        if best > limit["beats"] * known.guess and loss.end < limit["beats"] * known.guess:
            message = f"{words}, never below a guess ({known.guess_why}), while training reaches {shown(loss.end)}."
            return Finding("never-beats-guess", message, measured, gap.val.step_at(-1))
    if _is_past_its_best(gap, limit) and gap.train_fell_since:
        return _rising(run, limit, gap, words, measured)
    if not known.moves_freely and _never_better(run, gap, limit):
        message = f"{words}, while training goes from {shown(gap.train[0])} to {shown(gap.train[-1])} in the same time."
        return Finding("never-better", message, measured, gap.val.step_at(gap.best))
    return Finding("follows", f"{words}.", measured)


def _not_measured(gap: Gap, loss: Levels, limit: Limits) -> Finding | None:
    """A validation loss that is one number to its last digit while training falls."""
    values = gap.val.values
    if len(values) < limit["losses"] or float(np.ptp(values)) > 0 or loss.fallen <= limit["fallen"]:
        return None
    words = f"validation loss is exactly {shown(values[0])} in all {len(values)} validations"
    message = f"{words} while training falls from {shown(loss.start)} to {shown(loss.end)}."
    return Finding("not-measured", message, {"train": loss.end}, gap.val.step_at(-1))


def _worse(gap: Gap, loss: Levels, limit: Limits, end: float) -> str:
    """In words, if validation is worse than where training, or validation itself, began; else empty."""
    if _never_near(gap, loss, limit):
        return f", never below the {shown(loss.start)} that training began with, which falls to {shown(loss.end)}."
    ceiling = max(abs(loss.start), abs(float(gap.val.values[0])))
    by_chance = end - ceiling <= limit["noise"] * gap.noise * abs(gap.lowest)
    comes_back = float(np.min(gap.val.values[len(gap.val) // 2 :])) <= ceiling
    if end <= (1 + limit["above"]) * ceiling or (by_chance and comes_back):
        return ""
    return f"; training began at {shown(loss.start)} and ends at {shown(loss.end)}."


def _is_past_its_best(gap: Gap, limit: Limits) -> bool:
    """Whether validation has risen since its best, beyond noise, and what it lost counts beside what it had gained."""
    return gap.rise > max(limit["rise"], limit["noise"] * gap.noise) and gap.lost > limit["part"]


def _never_near(gap: Gap, loss: Levels, limit: Limits) -> bool:
    """Whether validation never came down to where training began and does not fall, while training falls by half."""
    high = len(gap.val) >= limit["losses"] and gap.lowest > (1 + limit["above"]) * abs(loss.start)
    halved = float(gap.train[-1]) < limit["halved"] * float(gap.train[0])
    return high and halved and chance_of_rise(-gap.val.values) > limit["chance"]


def _never_better(run: Signals, gap: Gap, limit: Limits) -> bool:
    """Whether validation never gets clearly better than at first, while training learns; nor does a success on it."""
    values = gap.val.values
    learns = len(values) >= limit["losses"] and float(gap.train[-1]) < limit["learns"] * float(gap.train[0])
    stays = gap.lowest > (1 - limit["better"]) * float(values[0]) and chance_of_rise(-values) > limit["chance"]
    return learns and stays and not improves_since(run, gap.val, gap.val.steps[0])


def _rising(run: Signals, limit: Limits, gap: Gap, words: str, measured: dict[str, float]) -> Finding:
    step = gap.val.step_at(gap.best)
    words = f"{words}: {gap.rise:.0%} above its best"
    if better := improves_since(run, gap.val, step):
        return Finding("follows", f"{words}, but {better}: the task itself improves.", measured)
    if measured["end"] < measured["train"]:
        return Finding("follows", f"{words}, and still below training at {shown(measured['train'])}.", measured)
    chance = chance_of_rise(gap.val.values[gap.best :])
    if known_facts(run, limit).moves_freely or chance >= limit["chance"]:
        return Finding("rises", f"{words} while training falls on.", measured, step)
    how = f"it rises steadily over {len(gap.val) - gap.best} validations since step {step}"
    return Finding("climbs", f"{words}; {how} while training falls on.", measured | {"chance": chance}, step)


def _alone(run: Signals, limit: Limits) -> Finding | None:
    """Validation without enough training losses beside it: a clear rise or a clear fall decides."""
    val, loss = run.maybe("val_loss"), run.maybe("loss")
    if val is None or (loss is not None and len(loss) >= limit["losses"]) or known_facts(run, limit).moves_freely:
        return None
    gap = Gap(val, np.full(len(val), np.nan), 1.0)
    step, best, end = val.step_at(gap.best), shown(gap.lowest), shown(val.values[-1])
    words, measured = f"validation loss {best} at its best, {end} at the end", {"rise": gap.rise}
    if not _is_past_its_best(gap, limit):
        return _falling(run, limit, words)
    chance = chance_of_rise(val.values[gap.best :])
    steady, never = chance < limit["chance"], _never_back(gap, limit)
    if not steady and not never:
        return None
    if better := improves_since(run, val, step, beyond_noise=not steady):
        return Finding("follows", f"{words}, but {better}: the task itself improves.")
    if steady:
        words += f": it rises steadily since step {step}"
        return Finding("climbs", f"{words}; training is hardly recorded.", measured | {"chance": chance}, step)
    return Finding("never-better", f"{words}: it never comes back to {shown(val.values[0])}.", measured, step)


def _never_back(gap: Gap, limit: Limits) -> bool:
    """Whether the first validation is the best of many, and the end lies clearly above it."""
    values = gap.val.values
    last = max(1, int(limit["last"] * len(values)))
    above = float(np.min(values[-last:])) > (1 + limit["above"]) * abs(float(values[0]))
    return len(values) >= limit["losses"] and above and int(np.argmin(values)) == 0


def _falling(run: Signals, limit: Limits, words: str) -> Finding | None:
    """Validation that fell beyond its noise and stays down, of a record with no training loss, or with a few."""
    if len(run.points("val_loss")) < limit["losses"]:
        return None
    val = levels(run, "val_loss", limit["losses"])
    if val.fallen <= limit["fallen"] or val.start - val.end <= limit["errors"] * val.error:
        return None
    measured = {"first": val.start, "best": val.best, "end": val.end}
    return Finding("follows", f"{words}, {shown(val.start)} at the start; training is hardly recorded.", measured)


QUESTION = Question(
    code="V1.3",
    name="validation follows",
    asks="Does validation improve with training, and is it better than a guess?",
    why="What is learned must hold on data that was not trained on. A validation loss far above its start means that "
    "the model, or its data in evaluation, is broken there.",
    needs=("val_loss", "loss"),
    panel=1,
    thresholds=(
        Threshold(
            name="fewest",
            value=2,
            unit="validations",
            meaning="fewer show no direction",
            seed="",
            decision="a first and a last",
        ),
        Threshold(
            name="above",
            value=0.1,
            unit="fraction",
            meaning="how far above its start, or a guess, validation may end",
            seed="",
            decision="healthy runs end at most 7% above their first validation, and below a guess",
        ),
        Threshold(
            name="beats",
            value=0.985,
            unit="of a guess's loss",
            meaning="what beats a guess",
            seed="",
            decision="as in V1.2",
        ),
        Threshold(
            name="patience",
            value=100,
            unit="steps",
            meaning="before this, validation need not beat a guess",
            seed="",
            decision="a shorter run may not have begun to learn",
        ),
        Threshold(
            name="rise",
            value=0.1,
            unit="fraction of the best validation loss",
            meaning="a smaller rise is not mentioned",
            seed="",
            decision="as in C4.2",
        ),
        Threshold(
            name="noise",
            value=5,
            unit="times the noise of validation",
            meaning="a smaller rise is chance",
            seed="",
            decision="as in C4.2",
        ),
        LOST_PART,
        Threshold(
            name="last",
            value=0.2,
            unit="fraction of the validations",
            meaning="how many of the last ones are its end, as their median",
            seed="",
            decision="one unlucky validation does not count",
        ),
        Threshold(
            name="fallen",
            value=0.1,
            unit="fraction of the first validations",
            meaning="how far validation must have fallen to show that a run learns of which it alone is recorded",
            seed="",
            decision="as far as the rise that counts",
        ),
        Threshold(
            name="errors",
            value=6,
            unit="standard errors",
            meaning="a smaller fall is noise",
            seed="",
            decision="as in V1.1",
        ),
        Threshold(
            name="chance",
            value=0.05,
            unit="probability",
            meaning="a rise of the validations since the best one that is more likely by chance is not steady",
            seed="",
            decision="as in C4.2: four that rise throughout are one order of 24",
        ),
        Threshold(
            name="learns",
            value=0.7,
            unit="of the training loss at the first validation",
            meaning="training that falls below this while validation never gets better learns nothing that holds",
            seed="",
            decision="measured: 0.75 and more in healthy runs whose validation has come to rest, and that had fallen",
        ),
        Threshold(
            name="better",
            value=0.02,
            unit="fraction of the first validation loss",
            meaning="a smaller fall of validation does not count",
            seed="",
            decision="as for the loss in V1.1",
        ),
        Threshold(
            name="halved",
            value=0.5,
            unit="of the training loss at the first validation",
            meaning="training that falls below this has learned since, which validation must show",
            seed="",
            decision="a smaller fall may not show on held-out data; losses on two scales fall together",
        ),
        LOSSES,
    ),
    outcomes=(
        Outcome(name="follows", answer=PASS, meaning="validation follows training"),
        Outcome(name="rises", answer=NOTE, meaning="validation is past its best while training improves: overfitting"),
        Outcome(
            name="climbs",
            answer=SUSPECT,
            meaning="validation rises steadily while training falls: the model memorises, or validation differs",
            fix="Keep the checkpoint of the best validation. Then more data, more regularisation, a smaller model or a "
            "lower learning rate.",
            experiment="Train again with a tenth of the learning rate, and once with half of the model's size. If "
            "validation stays at its best for longer, it was overfitting; if it rises all the same, compare how "
            "training and validation data are prepared.",
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="worse-than-start",
            answer=SUSPECT,
            meaning="validation ends worse than an untrained model: evaluation mode or its data preparation is broken",
            fix="Evaluate one training batch in evaluation mode: it must have its training loss. Check BatchNorm's "
            "running statistics and the validation preprocessing.",
            experiment="Compute the loss of one training batch in training and in evaluation mode. If they differ "
            "widely, running statistics or dropout are at fault; if not, the validation data is prepared differently.",
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="not-measured",
            answer=SUSPECT,
            meaning="the validation loss is one number throughout: it is not measured, or the weights do not change",
            fix="Print the loss of every validation batch, and check that it is summed, that it is reset and that the "
            "trained weights are the ones evaluated.",
            experiment="Validate once before training and once after 100 steps. If both losses are equal to the last "
            "digit, the evaluation does not see the trained weights, or adds nothing up.",
        ),
        Outcome(
            name="never-better",
            answer=SUSPECT,
            meaning="validation never gets clearly better than at its first measurement: what is learned does not hold "
            "on it",
            fix="Divide the learning rate by ten, and log the training loss more often: if it rises as well, the run "
            "diverges; if it falls, the model overfits from the start, or validation is prepared differently.",
            experiment="Train to the first validations again with a tenth of the learning rate. If validation falls, "
            "the rate was too high; if it rises all the same, compare how training and validation data are prepared.",
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="worse-than-guess",
            answer=SUSPECT,
            meaning="validation is worse than a guess while training is better",
            fix="Check the validation labels and preprocessing, then regularise.",
            experiment="Validate on a few training batches. If their loss is the training loss, the model has "
            "memorised; if not, evaluation is broken.",
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="never-beats-guess",
            answer=SUSPECT,
            meaning="nothing that is learned holds on validation: labels are unrelated, or validation is prepared "
            "differently",
            fix="Check in this order: whether inputs and labels belong together in training, whether there are enough "
            "examples, whether validation is prepared and numbered like training.",
            experiment="Validate on a few training batches. If their loss is far above the training loss, evaluation "
            "is broken. If not, train on shuffled labels: if the curves look the same, the labels are unrelated; if "
            "training falls more slowly, there are too few examples, or validation is prepared differently.",
            may_pass=True,
            symptom=True,
        ),
    ),
    find=find,
    always=True,
)
