"""V1.3: does validation follow training?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.questions.past_its_best import LOST_PART
from steadyrun.questions.vital_signs.improvement import course
from steadyrun.questions.vital_signs.left_behind import LEFT_BEHIND_LIMITS, LEFT_BEHIND_OUTCOMES, left_behind
from steadyrun.signals.curves import chance_of_rise
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.progress import Levels, levels
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.success import improves_since
from steadyrun.signals.validation import Gap, gap_of
from steadyrun.text import counted, shown


def find(run: Signals, limit: Limits) -> Finding:
    known = known_facts(run, limit)
    if (alone := _alone(run, limit)) is not None:
        return alone
    loss = levels(run, "loss", limit["losses"])
    gap = gap_of(run, known, limit["losses"])
    values = gap.val.values
    if len(values) < limit["fewest"]:
        raise MissingSignal("val_loss", f"{counted(len(values), 'validation')} recorded, {limit['fewest']:g} needed")
    last = max(1, int(limit["last"] * len(values)))
    first, best, end = float(values[0]), gap.lowest, float(np.median(values[-last:]))
    measured = {"first": first, "best": best, "end": end, "train": loss.end}
    words = course("Validation loss", first, best, end)
    if (unmeasured := _not_measured(gap, loss, limit)) is not None:
        return unmeasured
    if not known.moves_freely and (worse := _worse(gap, loss, limit, end)):
        since = gap.val.steps[0] if _never_near(gap, loss, limit) else gap.val.step_at(gap.best)
        if better := improves_since(run, gap.val, since):
            return Finding("follows", f"{words}, but the logged success improves: {better}.", measured)
        return Finding("worse-than-start", f"{words}. {worse}", measured, gap.val.step_at(-1))
    if known.guess is not None and loss.steps >= limit["patience"]:
        measured["ratio"] = end / known.guess
        message = f"{words}, while training reaches {shown(loss.end)} and {known.guess_why}."
        if end > (1 + limit["above"]) * known.guess and loss.end < limit["beats"] * known.guess:
            return Finding("worse-than-guess", message, measured, gap.val.step_at(-1))
        if best > limit["beats"] * known.guess and loss.end < limit["beats"] * known.guess:
            return Finding("never-beats-guess", message, measured, gap.val.step_at(-1))
    if _is_past_its_best(gap, limit) and gap.train_fell_since:
        return _rising(run, limit, gap, words, measured)
    if not known.moves_freely and _never_better(run, gap, limit):
        message = f"{words}, while the training loss fell from {shown(gap.train[0])} to {shown(gap.train[-1])}."
        return Finding("never-better", message, measured, gap.val.step_at(gap.best))
    if not known.moves_freely and (left := left_behind(run, gap, loss, limit)) is not None:
        course_of_training = f"while the training loss fell from {shown(gap.train[0])} to {shown(gap.train[-1])}"
        return Finding(left, f"{words}, {course_of_training}.", measured, gap.val.step_at(gap.best))
    return Finding("follows", f"{words}.", measured)


def _not_measured(gap: Gap, loss: Levels, limit: Limits) -> Finding | None:
    """A validation loss that is one number to the last digit while the training loss falls."""
    values = gap.val.values
    if len(values) < limit["losses"] or float(np.ptp(values)) > 0 or loss.fallen <= limit["fallen"]:
        return None
    words = f"Validation loss is exactly {shown(values[0])} in all {len(values)} validations"
    message = f"{words}, while the training loss fell from {shown(loss.start)} to {shown(loss.end)}."
    return Finding("not-measured", message, {"train": loss.end}, gap.val.step_at(-1))


def _worse(gap: Gap, loss: Levels, limit: Limits, end: float) -> str:
    """A sentence if validation is worse than the first training loss or the first validation; else empty."""
    if _never_near(gap, loss, limit):
        return f"It never reached the first training loss, {shown(loss.start)}, which fell to {shown(loss.end)}."
    ceiling = max(abs(loss.start), abs(float(gap.val.values[0])))
    by_chance = end - ceiling <= limit["noise"] * gap.noise * abs(gap.lowest)
    comes_back = float(np.min(gap.val.values[len(gap.val) // 2 :])) <= ceiling
    if end <= (1 + limit["above"]) * ceiling or (by_chance and comes_back):
        return ""
    return f"{course('Training loss', loss.start, loss.best, loss.end)}."


def _is_past_its_best(gap: Gap, limit: Limits) -> bool:
    """Whether validation has risen since its best beyond noise, by a relevant part of what it had gained."""
    return gap.rise > max(limit["rise"], limit["noise"] * gap.noise) and gap.lost > limit["part"]


def _never_near(gap: Gap, loss: Levels, limit: Limits) -> bool:
    """Whether validation never reached the first training loss and does not fall, while training falls by half."""
    high = len(gap.val) >= limit["losses"] and gap.lowest > (1 + limit["above"]) * abs(loss.start)
    halved = float(gap.train[-1]) < limit["halved"] * float(gap.train[0])
    return high and halved and chance_of_rise(-gap.val.values) > limit["chance"]


def _never_better(run: Signals, gap: Gap, limit: Limits) -> bool:
    """Whether neither the validation loss nor a held-out success improves on its first value while training learns."""
    values = gap.val.values
    learns = len(values) >= limit["losses"] and float(gap.train[-1]) < limit["learns"] * float(gap.train[0])
    stays = gap.lowest > (1 - limit["better"]) * float(values[0]) and chance_of_rise(-values) > limit["chance"]
    return learns and stays and not improves_since(run, gap.val, gap.val.steps[0])


def _rising(run: Signals, limit: Limits, gap: Gap, words: str, measured: dict[str, float]) -> Finding:
    step = gap.val.step_at(gap.best)
    if better := improves_since(run, gap.val, step):
        return Finding("follows", f"{words}, but the logged success improves: {better}.", measured)
    if measured["end"] < measured["train"]:
        return Finding("follows", f"{words}, below the training loss ({shown(measured['train'])}).", measured)
    chance = chance_of_rise(gap.val.values[gap.best :])
    if known_facts(run, limit).moves_freely or chance >= limit["chance"]:
        return Finding("rises", f"{words}, while the training loss still falls.", measured, step)
    how = f"It rises steadily over {len(gap.val) - gap.best} validations since step {step}"
    return Finding("climbs", f"{words}. {how} while the training loss falls.", measured | {"chance": chance}, step)


def _alone(run: Signals, limit: Limits) -> Finding | None:
    """The answer if too few training losses are recorded: only a clear rise or fall of validation decides."""
    val, loss = run.maybe("val_loss"), run.maybe("loss")
    if val is None or (loss is not None and len(loss) >= limit["losses"]) or known_facts(run, limit).moves_freely:
        return None
    gap = Gap(val, np.full(len(val), np.nan), 1.0)
    step, best, end = val.step_at(gap.best), shown(gap.lowest), shown(val.values[-1])
    words, measured = f"Validation loss ends at {end} (best {best})", {"rise": gap.rise}
    if not _is_past_its_best(gap, limit):
        return _falling(run, limit)
    chance = chance_of_rise(val.values[gap.best :])
    steady, never = chance < limit["chance"], _never_back(gap, limit)
    if not steady and not never:
        return None
    if better := improves_since(run, val, step, beyond_noise=not steady):
        return Finding("follows", f"{words}, but the logged success improves: {better}.")
    if steady:
        words += f". It rises steadily since step {step}; few or no training losses are recorded."
        return Finding("climbs", words, measured | {"chance": chance}, step)
    words = f"Validation loss rose from {shown(val.values[0])} to {end}; the first value is its best."
    return Finding("never-better", words, measured, step)


def _never_back(gap: Gap, limit: Limits) -> bool:
    """Whether the first validation is the best of many, and the end is clearly above it."""
    values = gap.val.values
    last = max(1, int(limit["last"] * len(values)))
    above = float(np.min(values[-last:])) > (1 + limit["above"]) * abs(float(values[0]))
    return len(values) >= limit["losses"] and above and int(np.argmin(values)) == 0


def _falling(run: Signals, limit: Limits) -> Finding | None:
    """Validation that fell beyond its noise and stays down, in a record with few or no training losses."""
    if len(run.points("val_loss")) < limit["losses"]:
        return None
    val = levels(run, "val_loss", limit["losses"])
    if val.fallen <= limit["fallen"] or val.start - val.end <= limit["errors"] * val.error:
        return None
    measured = {"first": val.start, "best": val.best, "end": val.end}
    words = course("Validation loss", val.start, val.best, val.end)
    return Finding("follows", f"{words}; few or no training losses are recorded.", measured)


QUESTION = Question(
    code="V1.3",
    name="validation follows",
    asks="Does validation improve with training, and is it better than a guess?",
    why="What the model learns must hold on data it was not trained on. A validation loss far above its start means "
    "that the model memorises, or that evaluation is broken.",
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
            meaning="how far above its start, or above a guess, validation may end",
            seed="",
            decision="healthy runs end at most 7% above their first validation, and below a guess",
        ),
        Threshold(
            name="beats",
            value=0.985,
            unit="of the loss of a guess",
            meaning="a lower loss is better than a guess",
            seed="",
            decision="as in V1.2",
        ),
        Threshold(
            name="patience",
            value=100,
            unit="steps",
            meaning="before this, validation need not be better than a guess",
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
            meaning="how many of the last validations form the end; their median counts",
            seed="",
            decision="one unlucky validation does not count",
        ),
        Threshold(
            name="fallen",
            value=0.1,
            unit="fraction of the first validations",
            meaning="how far validation must fall to show that a run learns if too few training losses are recorded",
            seed="",
            decision="the same size as the rise that counts",
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
            meaning="a rise since the best validation counts as steady if it is less likely than this by chance",
            seed="",
            decision="as in C4.2: four values that all rise are one of 24 possible orders",
        ),
        Threshold(
            name="learns",
            value=0.7,
            unit="of the training loss at the first validation",
            meaning="if training falls below this while validation never improves, validation does not follow",
            seed="",
            decision="measured: 0.75 and more in healthy runs whose validation had fallen and then stayed level",
        ),
        Threshold(
            name="better",
            value=0.02,
            unit="fraction of the first validation loss",
            meaning="a smaller fall of validation does not count",
            seed="",
            decision="as for the loss in V1.1",
        ),
        *LEFT_BEHIND_LIMITS,
        Threshold(
            name="halved",
            value=0.5,
            unit="of the training loss at the first validation",
            meaning="training that falls below this has learned since, and validation must show it",
            seed="",
            decision="a smaller fall may not show on held-out data; losses on two scales fall together",
        ),
        LOSSES,
    ),
    outcomes=(
        Outcome(name="follows", answer=PASS, meaning="validation follows training"),
        Outcome(
            name="rises",
            answer=NOTE,
            meaning="validation is past its best while training improves: overfitting",
            fix="Keep the checkpoint with the best validation, and stop there or add regularisation.",
        ),
        Outcome(
            name="climbs",
            answer=SUSPECT,
            meaning="validation rises steadily while training falls",
            fix="Keep the checkpoint with the best validation. Then add data or regularisation, use a smaller model, "
            "or lower the learning rate.",
            experiment="Train again with a tenth of the learning rate, and once with a model of half the size. If "
            "validation stays at its best for longer, the model was overfitting; if not, compare how training and "
            "validation data are prepared.",
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="worse-than-start",
            answer=SUSPECT,
            meaning="validation ends worse than an untrained model",
            fix="Evaluate one training batch in evaluation mode: its loss must equal its training loss. Check "
            "BatchNorm's running statistics and the validation preprocessing.",
            experiment="Compute the loss of one training batch in training mode and in evaluation mode. If they "
            "differ widely, running statistics or dropout are wrong; if not, validation data is prepared differently.",
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="not-measured",
            answer=SUSPECT,
            meaning="the validation loss never changes: it is not measured, or on old weights",
            fix="Print the loss of every validation batch. Check that the sum is reset and accumulated, and that the "
            "trained weights are evaluated.",
            experiment="Validate once before training and once after 100 steps. If both losses are equal to the last "
            "digit, the evaluation does not use the trained weights, or does not accumulate its loss.",
        ),
        Outcome(
            name="never-better",
            answer=SUSPECT,
            meaning="validation never improves on its first measurement",
            fix="Divide the learning rate by ten, and log the training loss more often. If it also rises, the run "
            "diverges; if it falls, the model overfits from the start, or validation is prepared differently.",
            experiment="Train to the first validations again with a tenth of the learning rate. If validation falls, "
            "the learning rate was too high; if it still rises, compare how training and validation data are "
            "prepared.",
            may_pass=True,
            symptom=True,
        ),
        *LEFT_BEHIND_OUTCOMES,
        Outcome(
            name="worse-than-guess",
            answer=SUSPECT,
            meaning="validation is worse than a guess while training is better",
            fix="Check the validation labels and preprocessing, then add regularisation.",
            experiment="Validate on a few training batches. If their loss equals the training loss, the model has "
            "memorised; if not, evaluation is broken.",
            may_pass=True,
            symptom=True,
        ),
        Outcome(
            name="never-beats-guess",
            answer=SUSPECT,
            meaning="validation is never better than a guess, though training is",
            fix="Check in this order: inputs and labels belong together in training, there are enough examples, "
            "validation uses the same preprocessing and class indices as training.",
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
