"""C7.5: does dropout leave enough of the model?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.configuration.sizes import STEPS, fall_in_words, fallen
from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.declared_schedule import number
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import counted, percent, shown

_HOW = "call run.watch(model, optimizer) before training"


def find(run: Signals, limit: Limits) -> Finding:
    listed = run.about("model").get("dropout")
    if not isinstance(listed, dict):
        raise MissingSignal("dropout", "the dropout of the model's modules was not recorded", _HOW)
    rates = [rate for value in listed.values() if (rate := number(value)) is not None and rate > 0]
    if not rates:
        raise NotApplicable("no module of the model has dropout")
    usual, gone = float(np.median(rates)), fallen(run, limit)
    measured = {"rate": usual, "fallen": gone}
    words = f"dropout {shown(usual)} in the median of {counted(len(rates), 'module')}; {fall_in_words(run, limit)}"
    if usual < limit["rate"] or gone >= limit["learned"]:
        return Finding("enough-left", f"{words}.", measured)
    message = f"dropout sets {percent(usual)} of the activations to zero (limit {percent(limit['rate'])}); {words}."
    return Finding("too-high", message, measured)


QUESTION = Question(
    code="C7.5",
    name="dropout",
    asks="Does dropout leave more than a quarter of the activations?",
    why="Dropout of 0.1 to 0.5 regularises. Far above, training sees noise instead of the input; often the fraction to "
    "keep was given instead of the fraction to drop.",
    needs=("dropout", "loss"),
    panel=1,
    thresholds=(
        LOSSES,
        Threshold(
            name="rate",
            value=0.75,
            unit="fraction of the activations, in the median module",
            meaning="what dropout may set to zero",
            seed="",
            decision="0.5 is the largest in common use",
        ),
        Threshold(
            name="learned",
            value=0.9,
            unit="fraction of the first loss",
            meaning="with a larger fall, the rate is a choice that works",
            seed="",
            decision="no rate like this is in common use, so the run has to show that it works",
        ),
        STEPS,
    ),
    outcomes=(
        Outcome(name="enough-left", answer=PASS, meaning="dropout is in the usual range, or the run learned with it"),
        Outcome(
            name="too-high",
            answer=SUSPECT,
            meaning="dropout removes most of the activations, and the loss stays high",
            fix="Use dropout 0.1 to 0.5. nn.Dropout takes the fraction to drop, not the fraction to keep.",
            experiment="Train 200 steps with dropout 0.1. If the loss gets lower, dropout was too high.",
            may_pass=True,
            explains=("V1", "C1.1", "C4", "S1.4:unrelated", "S1.5"),
        ),
    ),
    find=find,
)
