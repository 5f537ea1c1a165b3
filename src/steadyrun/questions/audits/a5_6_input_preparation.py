"""A5.6: is validation data prepared, indexed and labelled like training data?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.curves import Floats
from steadyrun.signals.declared_schedule import number
from steadyrun.signals.facts import ADVERSARIAL, CONTRASTIVE, POLICY
from steadyrun.signals.first_sight import Sight, sights
from steadyrun.signals.intent import sampled
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.progress import levels
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown


@dataclass(frozen=True)
class _Sides:
    """Mean and standard deviation of the model's inputs: in each sampled step, and in validation."""

    means: Floats
    stds: Floats
    mean: float
    std: float

    @property
    def ratio(self) -> float:
        """The larger standard deviation over the smaller; 1 if validation is within the range of training batches."""
        usual = float(np.median(self.stds))
        if min(self.stds) <= self.std <= max(self.stds):
            return 1.0
        narrow, wide = sorted([usual, self.std])
        return wide / narrow if narrow > 0 else np.inf

    @property
    def shift(self) -> float:
        """The distance of the means in the smaller standard deviation; 0 if within the range of training batches."""
        if min(self.means) <= self.mean <= max(self.means):
            return 0.0
        distance = abs(self.mean - float(np.median(self.means)))
        narrow = min(float(np.median(self.stds)), self.std)
        return distance / narrow if narrow > 0 else np.inf

    def __str__(self) -> str:
        train = f"{shown(float(np.median(self.means)))} ± {shown(float(np.median(self.stds)))}"
        return f"Inputs are {train} in training and {shown(self.mean)} ± {shown(self.std)} in validation"


def find(run: Signals, limit: Limits) -> Finding:
    try:
        scales = _scales(run, limit)
    except (MissingSignal, NotApplicable):
        if (unlike := _unlike(run, limit)) is not None:
            return unlike
        raise
    return scales if scales.outcome in ("differs", "other-scale") else _unlike(run, limit) or scales


def _scales(run: Signals, limit: Limits) -> Finding:
    """Whether the inputs of training and validation have similar means and standard deviations."""
    sides = _sides(run, limit)
    apart = max(sides.ratio / limit["ratio"], sides.shift / limit["shift"])
    measured = {"ratio": sides.ratio, "shift": sides.shift}
    if apart <= 1:
        return Finding("pass", f"{sides}.", measured)
    loss, val = levels(run, "loss", limit["losses"]), run.points("val_loss")
    if known_facts(run, limit).objective in (ADVERSARIAL, POLICY) or loss.end >= loss.start:
        raise NotApplicable("the training loss does not fall, so validation cannot be compared with it")
    end = float(np.median(val.values[-max(1, len(val) // limit.count("last")) :]))
    measured["lost"] = lost = (end - loss.end) / (loss.start - loss.end)
    facts = (
        f"{sides}. Training loss fell from {shown(loss.start)} to {shown(loss.end)}, validation loss is {shown(end)}"
    )
    if lost <= limit["lost"]:
        return Finding("follows", f"{facts}.", measured)
    if lost >= 1 and apart > limit["far"]:
        return Finding("other-scale", f"{facts}.", measured, val.step_at(-1))
    return Finding("differs", f"{facts}.", measured, val.step_at(-1))


def _unlike(run: Signals, limit: Limits) -> Finding | None:
    """Validation that never follows the loss on unseen training examples: memorisation cannot be the reason."""
    known, seen = known_facts(run, limit), sights(run)
    objective = run.inferred.get("objective")
    summed = "sum" in (run.config.get("reduction"), isinstance(objective, dict) and objective.get("reduction"))
    if known.objective in (ADVERSARIAL, POLICY, CONTRASTIVE) or summed or known.validated_by or not seen:
        return None
    untrained = known.guess if known.guess is not None else levels(run, "loss", limit["losses"]).start
    fallen = [sight for sight in seen if _has_fallen(sight, untrained, limit)]
    if not fallen:
        return None
    best = float(np.min(run.points("val_loss").values))
    at_its_best = Sight(fallen[-1].step, fallen[-1].level, fallen[-1].error, best)
    closest = min([*fallen, at_its_best], key=lambda sight: sight.excess(untrained))
    lacks = closest.excess(untrained)
    if lacks <= limit["lacks"] or closest.val - closest.level <= limit["errors"] * closest.error:
        return None
    by_example = known.guess is not None or run.matching("fit/*")  # a mean per example: batch size does not matter
    if not by_example and not _same_batch_size(run, limit):
        return None
    start = "a guess costs" if known.guess is not None else "training began at"
    message = (
        f"Training examples seen for the first time have a loss of {shown(closest.level)} at step {closest.step}, "
        f"validation {shown(closest.val)} at best ({start} {shown(untrained)}). Memorisation does not explain this gap."
    )
    return Finding("unlike", message, {"lacks": lacks, "first_sight": closest.level}, closest.step)


def _same_batch_size(run: Signals, limit: Limits) -> bool:
    """Whether validation batches are about as large as training batches, as far as known."""
    trained, events = run.maybe("examples"), run.events("validation")
    facts = [(event.fields.get("data"), event.fields.get("modes")) for event in events]
    known = [(data, modes) for data, modes in facts if isinstance(data, dict) and isinstance(modes, dict)]
    counts = [(number(data.get("examples")), number(modes.get("passes"))) for data, modes in known]
    sizes = [examples / passes for examples, passes in counts if examples and passes]
    if trained is None or not sizes:
        return True
    ratio = float(np.median(sizes)) / float(np.median(trained.values))
    return 1 / limit["sizes"] < ratio < limit["sizes"]


def _has_fallen(sight: Sight, untrained: float, limit: Limits) -> bool:
    fall = untrained - sight.level
    return fall > limit["fallen"] * abs(untrained) and fall > limit["errors"] * sight.error


def _sides(run: Signals, limit: Limits) -> _Sides:
    if not run.has("inputs/mean") and isinstance(run.inferred.get("objective"), dict):
        raise NotApplicable("the model gets no floating-point inputs")
    means, stds = sampled(run, "inputs/mean"), sampled(run, "inputs/std")
    if run.maybe("val_inputs/mean") is None:
        raise MissingSignal("val_inputs/mean", "no validation of the watched model was seen", _HOW)
    if len(means) < limit["samples"]:
        raise MissingSignal("inputs/mean", f"sampled training steps: {len(means)}, needed: {limit['samples']:g}")
    mean, std = (float(np.median(run.points(f"val_inputs/{name}").values)) for name in ("mean", "std"))
    return _Sides(means.values, stds.values, mean, std)


_HOW = "validate the watched model under torch.no_grad() between run.step(…) and run.val(…)"
_FIX = (
    "Use the training transform without its random parts in validation: the same scaling, and the mean and standard "
    "deviation of the training data."
)

QUESTION = Question(
    code="A5.6",
    name="same data preparation",
    asks="Is validation data prepared, indexed and labelled like training data?",
    why="A normalisation that only one side gets shows the model inputs it has never seen, and re-indexed classes or "
    "tokens mean something else: training looks good and validation is bad from the start. The loss on training "
    "examples seen for the first time cannot come from memorisation, so validation must follow it.",
    needs=("objective", "val_loss"),
    panel=1,
    thresholds=(
        LOSSES,
        Threshold(
            name="samples",
            value=3,
            unit="sampled steps",
            meaning="with fewer, the variation between batches is unknown",
            seed="",
            decision="the first three steps are sampled",
        ),
        Threshold(
            name="ratio",
            value=2,
            unit="times",
            meaning="how many times larger the standard deviation of one side may be",
            seed="",
            decision="healthy runs reach 1.12, with mixup; a missing normalisation gives 3 to 255",
            of="ratio",
        ),
        Threshold(
            name="sizes",
            value=2,
            unit="times",
            meaning="how many times larger validation batches may be, if the loss is not known to be a mean per "
            "example",
            seed="",
            decision="a healthy Cox loss of 192 patients is 1.9 times that of 16",
        ),
        Threshold(
            name="shift",
            value=1,
            unit="standard deviations",
            meaning="how far apart the means may be",
            seed="",
            decision="healthy runs reach 0.002; images in [0, 1] and standardised images are 1.7 apart",
            of="shift",
        ),
        Threshold(
            name="lost",
            value=0.2,
            unit="of the fall of the training loss",
            meaning="validation that lacks more of the fall does not follow",
            seed="",
            decision="noise applied only in training makes validation better; a missing normalisation cost 0.46 and "
            "more",
            of="lost",
        ),
        Threshold(
            name="far",
            value=5,
            unit="times the limits",
            meaning="inputs this far apart have a different scale",
            seed="",
            decision="[0, 255] against [0, 1] is 50 times the limits or more",
        ),
        Threshold(
            name="fallen",
            value=0.1,
            unit="of the loss of a guess, or of the first",
            meaning="how far the loss on unseen training examples must have fallen before validation is compared",
            seed="",
            decision="after a smaller fall hardly anything is learned, and validation may need as long",
        ),
        Threshold(
            name="errors",
            value=3,
            unit="standard errors",
            meaning="how certain this fall, and the gap to validation, must be",
            seed="",
            decision="chance alone does not reach this",
        ),
        Threshold(
            name="lacks",
            value=0.5,
            unit="of the fall of the loss on unseen training examples",
            meaning="how much of it validation may lack at every validation and at its best",
            seed="",
            decision="healthy runs reach 0.08; different indices, preparation or labels give 0.67 and more",
            of="lacks",
        ),
        Threshold(
            name="last",
            value=5,
            unit="equal parts of the validations",
            meaning="the median of the last part is the end",
            seed="",
            decision="as in V1.3",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="training and validation inputs are alike"),
        Outcome(
            name="follows",
            answer=PASS,
            meaning="inputs differ, but validation follows training",
        ),
        Outcome(
            name="differs",
            answer=SUSPECT,
            meaning="validation inputs have a different scale or offset",
            fix=_FIX,
            experiment="Prepare one training batch as validation prepares its data, and validate on it. If its loss "
            "is far above its training loss, the preparation is the cause; if not, the data differ.",
            explains=("A2.6", "C4.2", "S1.3", "V1.3"),
        ),
        Outcome(
            name="other-scale",
            answer=FAULT,
            meaning="validation inputs have a completely different scale",
            fix=_FIX,
            explains=("A2.6", "C4.2", "S1.3", "V1.3"),
        ),
        Outcome(
            name="unlike",
            answer=SUSPECT,
            meaning="validation data is prepared, indexed or labelled differently",
            fix="Build both sets with the same code: one transform, one vocabulary, one table from class names to "
            "indices, one way to make targets. Join labels to inputs by a key.",
            experiment="Hold out 200 training examples and validate on them with the validation code. If their loss "
            "is high, that code differs: its transform, its indices or its loss. If it is low, the data differ: "
            "train on half of the validation set. If the other half improves, inputs or classes are prepared or "
            "indexed differently; if not, its labels do not belong to its inputs.",
            explains=("C4.2", "C7", "S1.3", "S1.4", "V1"),
            may_pass=True,
        ),
    ),
    find=find,
    always=True,
)
