"""G3.5: is the target of a diffusion model of the declared kind?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.goals.common import SAMPLES
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent, shown

_NOISE = frozenset({"epsilon", "eps", "noise"})


def find(run: Signals, limit: Limits) -> Finding:
    if (unusual := _one_time(run, limit) or _mixed(run, limit)) is not None:
        return unusual
    kind = str(run.config.get("prediction_type", "")).lower()
    variance, mean = run.maybe("fit_guess/squared"), run.maybe("fit_target/squared")
    if not _of_noise(run) or variance is None or mean is None or len(variance) < limit["samples"]:
        raise NotApplicable("no prediction_type 'epsilon' is declared, or the loss has no squared error")
    measured = {"variance": float(np.median(variance.values)), "mean": float(np.median(mean.values))}
    words = f"The targets have a mean of {shown(measured['mean'])} and a variance of {shown(measured['variance'])}"
    if abs(measured["variance"] - 1) > limit["off"] or abs(measured["mean"]) > limit["off"]:
        return Finding("other", f"{words}; noise has 0 and 1 (prediction_type {kind!r} is declared).", measured)
    return Finding("noise", f"{words}, as noise has.", measured)


def _denoises(run: Signals) -> bool:
    """Whether a model is declared that learns to remove noise."""
    return run.config.get("prediction_type") is not None


def _one_time(run: Signals, limit: Limits) -> Finding | None:
    """A model that is given one number for each example, which is the same for all."""
    spread = run.maybe("noised/times") if _denoises(run) else None
    if spread is None or len(spread) < limit["samples"] or float(np.max(spread.values)) > 0:
        return None
    message = f"In all {len(spread)} sampled steps, the model is given the same time for every example."
    return Finding("one-time", message, {"samples": float(len(spread))})


def _mixed(run: Signals, limit: Limits) -> Finding | None:
    """Noise that never gets strong, or that is mixed with the data by other weights than those of diffusion."""
    if not _of_noise(run):
        return None
    most, squares, sums = (_typical(run, f"noised/{name}", limit) for name in ("most", "by_squares", "by_sums"))
    if most is not None and most < limit["noise"]:
        message = f"In the noisiest part of a batch, noise makes up {percent(most)} of the variance (limit "
        return Finding("weak", f"{message}{percent(limit['noise'])}).", {"most": most})
    if squares is not None and sums is not None and squares > limit["misfit"] and sums < limit["better"] * squares:
        message = f"The weights of data and noise add up to 1, not their squares: that leaves {percent(sums)} of the "
        return Finding("linear", f"{message}data's part unexplained, squares {percent(squares)}.", {"squares": squares})
    return None


def _typical(run: Signals, name: str, limit: Limits) -> float | None:
    points = run.maybe(name)
    return None if points is None or len(points) < limit["samples"] else float(np.median(points.values))


def _of_noise(run: Signals) -> bool:
    return str(run.config.get("prediction_type", "")).lower() in _NOISE


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
            name="noise",
            value=0.7,
            unit="of the variance",
            meaning="if the noisiest inputs have less noise, the model never learns to begin from noise alone",
            seed="",
            decision="chosen: usual schedules end above 0.99; the last tenth of the times is averaged",
            of="-most",
        ),
        Threshold(
            name="misfit",
            value=0.1,
            unit="of the data's part",
            meaning="if squares that add up to 1 leave more unexplained, the weights are others",
            seed="",
            decision="chosen: examples differ in size by about as much",
        ),
        Threshold(
            name="better",
            value=0.5,
            unit="of that",
            meaning="how much less weights that add up to 1 must leave unexplained",
            seed="",
            decision="chosen: half",
        ),
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
        Outcome(
            name="one-time",
            answer=SUSPECT,
            meaning="the model is given the same time for every example",
            fix="Give the model the time that the noise was drawn for: model(noisy, t).",
            experiment="Compare the outputs of the model for two times. If training never gave it two, they mean "
            "nothing.",
            explains=("V1",),
        ),
        Outcome(
            name="weak",
            answer=SUSPECT,
            meaning="even the noisiest inputs are mostly data, but a sampler begins with noise alone",
            fix="Use the cumulative product: alpha_bar = cumprod(1 - beta), and draw times over the whole schedule.",
            experiment="Print alpha_bar at the last time. It must be near 0.",
            explains=("V1",),
        ),
        Outcome(
            name="linear",
            answer=SUSPECT,
            meaning="data and noise are mixed without the roots",
            fix="noisy = sqrt(alpha_bar) * data + sqrt(1 - alpha_bar) * noise, in training and in the sampler.",
            experiment="Print the variance of the noisy batch at a middle time for data of variance 1. It must be 1.",
            explains=("V1",),
        ),
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
