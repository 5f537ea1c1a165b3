"""G3.5: is the target of a diffusion model of the declared kind?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.goals.common import SAMPLES
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown

_NOISE = frozenset({"epsilon", "eps", "noise"})


def find(run: Signals, limit: Limits) -> Finding:
    kind = str(run.config.get("prediction_type", "")).lower()
    variance, mean = run.maybe("fit_guess/squared"), run.maybe("fit_target/squared")
    if kind not in _NOISE or variance is None or mean is None or len(variance) < limit["samples"]:
        raise NotApplicable("no prediction_type 'epsilon' is declared, or the loss has no squared error")
    measured = {"variance": float(np.median(variance.values)), "mean": float(np.median(mean.values))}
    words = f"The targets have a mean of {shown(measured['mean'])} and a variance of {shown(measured['variance'])}"
    if abs(measured["variance"] - 1) > limit["off"] or abs(measured["mean"]) > limit["off"]:
        return Finding("other", f"{words}; noise has 0 and 1 (prediction_type {kind!r} is declared).", measured)
    return Finding("noise", f"{words}, as noise has.", measured)


QUESTION = Question(
    code="G3.5",
    name="target is noise",
    asks="Does a diffusion model that is declared to predict noise learn noise?",
    why="A model that learns the image, the velocity or something else learns without an error; a sampler that takes "
    "its output for noise then draws nothing.",
    needs=("prediction_type", "fit/*"),
    panel=1,
    thresholds=(
        SAMPLES,
        Threshold(
            name="off",
            value=0.1,
            unit="mean, and variance beside 1",
            meaning="targets further from a mean of 0 and a variance of 1 are not noise",
            seed="",
            decision="chosen: offset noise of 0.1 adds 0.01 to the variance",
        ),
    ),
    outcomes=(
        Outcome(name="noise", answer=PASS, meaning="the target is standard noise"),
        Outcome(
            name="other",
            answer=SUSPECT,
            meaning="the model is declared to predict noise, but its target is something else",
            fix="Compare the model's output with the noise that was added: mse(model(noisy, t), noise). For another "
            "target declare it: prediction_type 'sample' or 'v_prediction', in training and in the sampler.",
            experiment="Print mean and variance of the target of one batch. Noise has 0 and 1.",
        ),
    ),
    find=find,
    always=True,
    special=True,
)
