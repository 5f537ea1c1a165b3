"""A2.6: is the model called in validation as it is in training?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.declared_schedule import number
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.progress import levels
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.validation import gap_of
from steadyrun.text import percent, shown


@dataclass(frozen=True)
class _Calls:
    """How validation calls the model: which tensors only training passes, and how unevenly its parts are called."""

    given: float
    given_in_training: float
    uneven: float
    part: str

    def differ(self, limit: Limits) -> bool:
        return self.given_in_training > self.given or self.uneven > limit["uneven"]

    def words(self, limit: Limits) -> str:
        if self.given_in_training > self.given:
            return f"The model gets {self.given_in_training:g} tensors in training and {self.given:g} in validation"
        if self.uneven > limit["uneven"]:
            part = self.part or "the model"
            return f"Relative to other parts, {part} is called {shown(self.uneven)} times as often as in training"
        return "Validation passes as many tensors as training and calls the parts of the model as often"


def find(run: Signals, limit: Limits) -> Finding:
    calls = _calls(run)
    measured = {"withheld": max(0.0, calls.given_in_training - calls.given), "uneven": calls.uneven}
    if not calls.differ(limit):
        return Finding("alike", f"{calls.words(limit)}.", measured)
    early, lost = _lost(run, limit)
    measured |= {"early": early, "lost": lost}
    facts = f"{calls.words(limit)}. Of the fall of the training loss, validation lacks {percent(early)} in the first "
    facts = f"{facts}half and {percent(lost)} at the end (limit {percent(limit['lost'])})"
    apart = lost > limit["lost"] and early > limit["early"] * lost
    return Finding("differs" if apart else "follows", f"{facts}.", measured)


def _calls(run: Signals) -> _Calls:
    """The typical validation: the median of each number, the most frequent part."""
    seen = [calls for event in run.events("validation") if isinstance(calls := event.fields.get("calls"), dict)]
    if not any(calls for calls in seen):
        raise MissingSignal("validation passes", "no forward pass without gradients was seen before a validation", _HOW)
    given, trained, uneven = (_median(seen, name) for name in ("given", "given_in_training", "uneven"))
    parts = [str(calls.get("part", "")) for calls in seen]
    return _Calls(given, trained, uneven, max(parts, key=parts.count))


def _median(seen: list[dict[str, object]], name: str) -> float:
    values = [value for calls in seen if (value := number(calls.get(name))) is not None]
    return float(np.median(values)) if values else 1.0


def _lost(run: Signals, limit: Limits) -> tuple[float, float]:
    """The fraction of the training loss's fall that validation lacks: in the first half of its record, and at the end.

    If the model memorises, this fraction grows.
    """
    known, loss = known_facts(run, limit), levels(run, "loss", limit["losses"])
    if known.moves_freely or loss.end >= loss.start:
        raise NotApplicable("the training loss does not fall, so validation cannot be compared with it")
    gap = gap_of(run, known, limit["losses"])
    fallen = loss.start - gap.train
    judged = fallen > limit["fallen"] * (loss.start - loss.end)
    if np.count_nonzero(judged) < limit["validations"]:
        raise NotApplicable(f"fewer than {limit['validations']:g} validations since the training loss fell")
    lacks = (gap.val.values - gap.train)[judged] / fallen[judged]
    last = lacks[-max(1, len(lacks) // limit.count("last")) :]
    return float(np.median(lacks[: len(lacks) // 2])), float(np.median(last))


_HOW = "validate the watched model under torch.no_grad() between run.step(…) and run.val(…)"

QUESTION = Question(
    code="A2.6",
    name="validated as trained",
    asks="Is the model called in validation as it is in training?",
    why="A decoder that gets the true previous value in training and its own output in validation (teacher forcing) "
    "learns a different task than the one it is judged by. So does a model with an input that only training has. "
    "Training looks good, and validation is far behind from the start.",
    needs=("objective", "val_loss"),
    panel=1,
    thresholds=(
        LOSSES,
        Threshold(
            name="uneven",
            value=2.5,
            unit="times",
            meaning="how much more often, relative to other parts, a part may run in validation than in training",
            seed="",
            decision="layers skipped at random in training give 2; a decoder that runs token by token gives the "
            "length of its output",
            of="uneven",
        ),
        Threshold(
            name="lost",
            value=0.2,
            unit="of the fall of the training loss",
            meaning="validation that lacks more at the end does not follow",
            seed="",
            decision="as in A5.6",
            of="lost",
        ),
        Threshold(
            name="early",
            value=0.8,
            unit="of the fraction missing at the end",
            meaning="if less is missing in the first half, the gap grows because the model memorises",
            seed="",
            decision="memorised rows: 0.55 to 0.7; teacher forcing: 0.89 and more, but 0.65 if validation rises",
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
            name="fallen",
            value=0.5,
            unit="of the whole fall of the training loss",
            meaning="validation is judged only after the training loss has fallen this far",
            seed="",
            decision="while the loss falls fast, its smoothed value is above validation",
        ),
        Threshold(
            name="validations",
            value=4,
            unit="validations",
            meaning="fewer do not show whether the gap grows",
            seed="",
            decision="two in each half",
        ),
    ),
    outcomes=(
        Outcome(name="alike", answer=PASS, meaning="validation calls the model as training does"),
        Outcome(
            name="follows",
            answer=PASS,
            meaning="validation calls the model differently, which does not explain its loss",
        ),
        Outcome(
            name="differs",
            answer=SUSPECT,
            meaning="validation calls the model differently than training does",
            fix="Train the model as it will be used: feed it its own outputs in some steps (scheduled sampling), or "
            "drop the input that only training has. Check that this input does not contain the answer.",
            experiment="Validate once exactly as training calls the model. If that loss is near the training loss, "
            "the difference causes the gap; if not, the data do. Then train once as validation calls the model: if "
            "validation improves, the difference harms the model.",
            may_pass=True,
            explains=("A5.6:unlike", "C4.2", "S1.3", "V1.3"),
        ),
    ),
    find=find,
    always=True,
)
