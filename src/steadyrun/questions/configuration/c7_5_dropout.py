"""C7.5: dropout leaves enough activations."""

from __future__ import annotations

import numpy as np

from steadyrun.questions.configuration.sizes import STEPS, fall_in_words, fallen
from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.declared_schedule import number
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import counted, shown

_HOW = "call run.watch(model, optimizer) before training"


def find(run: Signals, limit: Limits) -> Finding:
    listed = run.about("model").get("dropout")
    if not isinstance(listed, dict):
        raise MissingSignal("dropout", "the dropout rates of the model were not recorded", _HOW)
    rates = [rate for value in listed.values() if (rate := number(value)) is not None and rate > 0]
    if not rates:
        raise NotApplicable("no module of the model has dropout")
    usual, gone = float(np.median(rates)), fallen(run, limit)
    measured = {"rate": usual, "fallen": gone}
    facts = f"The median dropout rate is {shown(usual)} ({counted(len(rates), 'module')}"
    words = fall_in_words(run, limit)
    if usual < limit["rate"] or gone >= limit["learned"]:
        return Finding("enough-left", f"{facts}); {words}.", measured)
    clears = f"a fall of {limit['learned']:.0%} would show that it works"
    return Finding("too-high", f"{facts}, limit {limit['rate']:g}); {words} ({clears}).", measured)


QUESTION = Question(
    code="C7.5",
    name="dropout",
    asks="Does dropout leave more than a quarter of the activations?",
    why="Dropout of 0.1 to 0.5 regularises. Far above that, the model trains on noise instead of its input; often the "
    "fraction to keep was given instead of the fraction to drop.",
    needs=("dropout", "loss"),
    panel=1,
    thresholds=(
        LOSSES,
        Threshold(
            name="rate",
            value=0.75,
            unit="fraction of the activations, in the median module",
            meaning="fraction that dropout may set to zero",
            seed="",
            decision="0.5 is the largest in common use",
        ),
        Threshold(
            name="learned",
            value=0.9,
            unit="fraction of the first loss",
            meaning="after a larger fall, the rate is a choice that works",
            seed="",
            decision="such a rate is not in common use, so the run must show that it works",
        ),
        STEPS,
    ),
    outcomes=(
        Outcome(name="enough-left", answer=PASS, meaning="dropout is usual, or the run learned anyway"),
        Outcome(
            name="too-high",
            answer=SUSPECT,
            meaning="dropout is too high",
            fix="Use dropout 0.1 to 0.5: nn.Dropout(p) takes the fraction to drop, not the fraction to keep.",
            experiment="Train 200 steps with dropout 0.1. If the validation loss at step 200 is lower than in this run "
            "at step 200, dropout was too high.",
            may_pass=True,
            explains=("V1", "C1.1", "C4", "S1.4:unrelated", "S1.5"),
        ),
    ),
    find=find,
)
