"""C5.1: the distribution of the initial weights."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

from steadyrun.questions.configuration import c1_1_initial_loss, c1_2_first_gradient
from steadyrun.questions.configuration.sizes import STEPS, fall_in_words, fallen
from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.initial_weights import Weight, initial_weights, tied_weights
from steadyrun.signals.intent import untrained_start
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import counted, shown

_SHOWN = 3
_LOWER = "If the loss at step 200 is lower than in this run at step 200, the initial weights were"


def find(run: Signals, limit: Limits) -> Finding:
    untrained_start(run)
    weights = initial_weights(run)
    tied = tied_weights(run)
    matrices = [w for w in weights if w.role == "matrix"]
    widest = max(matrices, key=lambda w: w.too_wide, default=None)
    shifted = [w for w in matrices if w.off_centre(limit["errors"]) > limit["mean"]]
    biases = [w for w in weights if w.role == "bias" and w.largest > limit["bias"]]
    embeddings = [w for w in weights if w.role == "embedding" and w.name in tied and w.std > limit["tied"]]
    measured = {
        "times_expected": widest.too_wide if widest else 0.0,
        "mean": max((w.off_centre(limit["errors"]) for w in matrices), default=0.0),
        "bias": max((w.largest for w in weights if w.role == "bias"), default=0.0),
    }
    proof = _starts_badly(run, limit)
    if (alike := _alike(matrices, limit, measured)) is not None:
        return alike
    if widest is not None and widest.too_wide > limit["wide"]:
        wide = sorted((w for w in matrices if w.too_wide > limit["wide"]), key=lambda w: -w.too_wide)
        facts = _say(
            wide,
            lambda w: f"standard deviation {shown(w.std)}, {shown(w.too_wide)} times sqrt(2 / fan-in)",
            limit["wide"],
        )
        known = any(w.of_a_layer for w in wide) or len(wide) > len(matrices) / 2
        if not proof and (off := _all_off(run, limit, weights, measured)) is not None:
            return off
        return _judge("too-wide", facts, proof if known else "", measured)
    if embeddings:
        return _judge(
            "too-wide",
            _say(embeddings, lambda w: f"standard deviation {shown(w.std)}, tied to the output", limit["tied"]),
            proof,
            measured,
        )
    if far := _far_biases(run, limit, biases, proof):
        return Finding("perhaps-bias", far, measured, 0)
    if biases:
        facts = _say(biases, lambda w: f"absolute values up to {shown(w.largest)}", limit["bias"])
        return _judge("bias", facts, proof if any(w.of_a_layer for w in biases) else "", measured)
    if shifted:
        facts = _say(shifted, lambda w: f"mean {shown(w.mean)}", limit["mean"])
        return _judge("off-centre", facts, proof if any(w.of_a_layer for w in shifted) else "", measured)
    if off := _all_off(run, limit, weights, measured):
        return off
    return Finding(
        "pass",
        f"The widest matrix has a standard deviation of {shown(measured['times_expected'])} times sqrt(2 / fan-in); "
        f"{counted(len(weights), 'parameter')} compared.",
        measured,
    )


def _far_biases(run: Signals, limit: Limits, biases: list[Weight], proof: str) -> str:
    """In words: layers whose biases all lie far on one side of zero, in a run that starts badly; empty otherwise."""
    far = [w for w in biases if w.size >= limit["units"] and min(abs(w.low), abs(w.high)) > limit["far_bias"]]
    far = [w for w in far if w.low * w.high > 0]
    proof = proof or _predicts_badly(run, limit) or _steep(run, limit)
    if not far or not proof:
        return ""
    facts = _say(far, lambda w: f"all {w.size} values {_between(w)}", limit["far_bias"])
    return f"{facts}. {proof}."


def _between(weight: Weight) -> str:
    low, high = shown(weight.low), shown(weight.high)
    return f"are {low}" if low == high else f"lie between {low} and {high}"


def _alike(matrices: list[Weight], limit: Limits, measured: dict[str, float]) -> Finding | None:
    """Most matrices are constant: only an output or the end of a residual branch may start at zero."""
    constant = [w for w in matrices if w.constant]
    measured["constant"] = len(constant) / len(matrices) if matrices else 0.0
    if len(constant) < limit["constant_matrices"] or measured["constant"] <= limit["constant"]:
        return None
    facts = _say(constant, lambda w: f"all {w.size:,} values are {shown(w.mean)}")
    message = f"{len(constant)} of {len(matrices)} matrices are constant (limit {limit['constant']:.0%}): {facts}."
    return Finding("alike", message, measured, 0)


def _all_off(run: Signals, limit: Limits, weights: list[Weight], measured: dict[str, float]) -> Finding | None:
    """Matrices that are all somewhat too wide or too narrow, in a run whose start and end show it."""
    drawn = [w.too_wide for w in weights if w.role == "matrix" and w.too_wide > 0]
    if not drawn:
        return None
    usual = measured["usual"] = statistics.median(drawn)
    facts = f"The median matrix has a standard deviation of {shown(usual)} times sqrt(2 / fan-in)"
    try:
        gone, words = fallen(run, limit), fall_in_words(run, limit)
    except (MissingSignal, NotApplicable):
        return None
    far = usual > limit["far_too_wide"]
    proof = _starts_badly(run, limit) or _predicts_badly(run, limit) or (_steep(run, limit) if far else "")
    if proof and usual > limit["rather_wide"] and (gone < limit["learned"] or far):
        most = limit["far_too_wide"] if far else limit["rather_wide"]
        divide = f"Divide every initial weight matrix by {shown(usual)} and train 200 steps. {_LOWER} too large."
        return Finding(
            "perhaps-too-wide", f"{facts} (limit {most:g}). {proof}; {words}.", measured, 0, experiment=divide
        )
    normed = any(w.role == "norm" for w in weights)
    if usual < limit["narrow"] and not normed and gone < limit["learned"]:
        least = f"expected at least {limit['narrow']:g}"
        message = f"{facts} ({least}), and the model has no norm layer; {words}."
        return Finding("perhaps-too-narrow", message, measured, 0)
    return None


def _judge(outcome: str, facts: str, proof: str, measured: dict[str, float]) -> Finding:
    """A fault if the first step shows the damage, otherwise a note."""
    if proof:
        return Finding(outcome, f"{facts}. {proof}.", measured, 0)
    return Finding("unusual", f"{facts}. The first loss and gradient do not show any harm.", measured, 0)


def _starts_badly(run: Signals, limit: Limits) -> str:
    """In words: the damage that the first loss or gradient shows; empty if there is none."""
    loss = limit.ask(c1_1_initial_loss.QUESTION, run)
    first = run.raw("loss").values[:1] if run.has("loss") else np.ones(1)
    if not np.all(np.isfinite(first)):
        return "The first loss is not finite"
    if loss.outcome == "high":
        return f"The first loss is {shown(loss.measured['offset'])} above that of a guess"
    return _steep(run, limit) if known_facts(run, limit).classes is not None else ""


def _steep(run: Signals, limit: Limits) -> str:
    """In words: a first gradient that is very large; only that of a cross-entropy has a usual size."""
    gradient = limit.ask(c1_2_first_gradient.QUESTION, run)
    if gradient.outcome != "too-large":
        return ""
    return f"The first gradient norm is {shown(gradient.measured['grad_norm'])}"


def _predicts_badly(run: Signals, limit: Limits) -> str:
    """In words: first predictions of a regression that are far off; empty otherwise."""
    for name in run.matching("fit/*"):
        fit, guess = run.maybe(name), run.maybe(name.replace("fit/", "fit_guess/"))
        if fit is not None and guess is not None and fit.values[0] > limit["astray"] * guess.values[0] > 0:
            return f"The first predictions have {shown(fit.values[0] / guess.values[0])} times the error of a guess"
    return ""


def _say(weights: list[Weight], words: Any, limit: float | None = None) -> str:
    parts = [f"{w.name}: {words(w)}" for w in weights[:_SHOWN]]
    more = f" and {len(weights) - _SHOWN} more" if len(weights) > _SHOWN else ""
    return f"{'; '.join(parts)}{more}{'' if limit is None else f' (limit {limit:g})'}"


QUESTION = Question(
    code="C5.1",
    name="initial weights",
    asks="Do the initial weights have the mean and standard deviation of a usual initialisation?",
    why="Weights that start too wide make the first outputs confidently wrong and the first gradients enormous. "
    "Training then only undoes that, or never recovers.",
    needs=("initial_weights", "loss"),
    panel=5,
    thresholds=(
        Threshold(
            name="astray",
            value=20,
            unit="times the error of a guess",
            meaning="first predictions this far off show that the weights are too wide",
            seed="",
            decision="untrained networks of usual width stay within ten times if targets are of unit size",
        ),
        LOSSES,
        Threshold(
            name="wide",
            value=10,
            unit="times sqrt(2 / fan-in)",
            meaning="standard deviation of a weight matrix",
            seed="100 times the expected 0.02",
            decision="0.02 drawn as 2 is 16 times Kaiming's rule at width 128; healthy weights stay below 2",
            of="times_expected",
        ),
        Threshold(
            name="tied",
            value=0.5,
            unit="",
            meaning="standard deviation of an embedding that is also the output matrix",
            seed="embedding 0.02",
            decision="an embedding alone may be N(0, 1), torch's default; as an output matrix it gives huge logits",
        ),
        Threshold(
            name="bias",
            value=1.0,
            unit="",
            meaning="largest bias",
            seed="biases 0",
            decision="torch draws biases below 1 / sqrt(fan-in)",
            of="bias",
        ),
        Threshold(
            name="far_bias",
            value=10,
            unit="",
            meaning="biases of a layer that all lie beyond it on one side are suspect if the run starts badly",
            seed="",
            decision="forget gates and outputs start at 1 to 5, a prior of 0.01 is -4.6; a ReLU with a bias of -10 is "
            "always off",
        ),
        Threshold(
            name="units",
            value=8,
            unit="biases",
            meaning="fewer may be an output that starts at the level of its targets",
            seed="",
            decision="an output of a few values often starts at the mean of its targets",
        ),
        Threshold(
            name="mean",
            value=0.01,
            unit="",
            meaning="mean of a weight matrix, beyond five standard errors",
            seed="0.01",
            decision="the rule of thumb, beyond chance",
            of="mean",
        ),
        Threshold(
            name="rather_wide",
            value=1.2,
            unit="times sqrt(2 / fan-in), in the median matrix",
            meaning="wider is suspect if the first loss shows it and the model does not get better than a guess",
            seed="",
            decision="Kaiming's rule is 1, the widest in common use",
        ),
        Threshold(
            name="far_too_wide",
            value=3,
            unit="times sqrt(2 / fan-in), in the median matrix",
            meaning="wider is suspect if the first loss, gradient or predictions show it, even if the loss falls later",
            seed="",
            decision="no rule in use draws most matrices wider than 1.2; healthy runs reach 0.5",
        ),
        Threshold(
            name="constant",
            value=0.5,
            unit="of the matrices",
            meaning="how many may be constant",
            seed="",
            decision="outputs, ends of residual branches and adapters start at zero on purpose: at most every second "
            "matrix",
            of="constant",
        ),
        Threshold(
            name="constant_matrices",
            value=2,
            unit="matrices",
            meaning="with fewer, constant matrices are normal",
            seed="",
            decision="a linear model may start at zero: it has no hidden units that must differ",
        ),
        Threshold(
            name="narrow",
            value=0.1,
            unit="times sqrt(2 / fan-in), in the median matrix",
            meaning="narrower is suspect if the model has no norm layer and the loss hardly falls",
            seed="",
            decision="torch's default is 0.41; a standard deviation of 0.02 is 0.1 at fan-in 64, and is used with "
            "norm layers",
        ),
        Threshold(
            name="learned",
            value=0.35,
            unit="fraction of the first loss, or of that of a guess",
            meaning="after a larger fall, the start did no harm",
            seed="",
            decision="a run that learns is not broken",
        ),
        Threshold(
            name="errors",
            value=5.0,
            unit="standard errors",
            meaning="a mean closer to zero is chance",
            seed="",
            decision="chance alone gives two or three",
        ),
        STEPS,
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the initial weights are ordinary"),
        Outcome(
            name="unusual",
            answer=NOTE,
            meaning="initial weights or biases are unusual, without visible harm",
            fix="No action is needed if these values are intended and the loss falls.",
        ),
        Outcome(
            name="too-wide",
            answer=FAULT,
            meaning="the initial weights are far too large",
            fix="Initialise matrices with a standard deviation of 0.02, or by Kaiming's or Xavier's rule. The usual "
            "mistakes are 2 instead of 0.02 and a forgotten division by sqrt(fan-in).",
            explains=("C1", "D1", "P3.3", "E"),
            proved=True,
        ),
        Outcome(
            name="bias",
            answer=FAULT,
            meaning="biases start far from zero",
            fix="Initialise biases with zero, first of all those of the output layer.",
        ),
        Outcome(
            name="off-centre",
            answer=FAULT,
            meaning="the mean of the initial weights is not zero",
            fix="Draw weights around zero: torch.randn, not torch.rand.",
        ),
        Outcome(
            name="perhaps-too-wide",
            answer=SUSPECT,
            meaning="the initial weights are too large",
            fix="Initialise matrices by Kaiming's or Xavier's rule.",
            experiment=f"Train 200 steps from torch's default initialisation. {_LOWER} too large.",
            may_pass=True,
            explains=("V1", "C1", "C3", "C4.1", "C5.2", "C7.1", "S1.4:unrelated", "S4"),
        ),
        Outcome(
            name="perhaps-bias",
            answer=SUSPECT,
            meaning="all biases of a layer start far on one side of zero",
            fix="Initialise the biases of hidden layers with zero.",
            experiment="Set these biases to zero and train 200 steps. If the loss at step 200 is lower than in this "
            "run at step 200, they are the cause.",
            may_pass=True,
            explains=("V1", "C1", "C3", "C4", "C7", "D2", "S1.5", "S4", "S6"),
        ),
        Outcome(
            name="alike",
            answer=SUSPECT,
            meaning="most matrices start constant, so units of a layer learn the same",
            fix="Draw the matrices at random, by Kaiming's or Xavier's rule. Zero is right only for biases, the "
            "output and the end of a residual branch.",
            experiment="Train 200 steps from torch's default initialisation. If the loss at step 200 is lower than in "
            "this run at step 200, the constant start is the cause.",
            may_pass=True,
            explains=("V1", "C1", "C4", "C7", "S1.4:unrelated", "S1.5", "S4", "S6"),
        ),
        Outcome(
            name="perhaps-too-narrow",
            answer=SUSPECT,
            meaning="the initial weights are too small, and the model has no norm layer",
            fix="Use torch's default initialisation, or initialise matrices by Kaiming's or Xavier's rule.",
            experiment=f"Train 200 steps from torch's default initialisation. {_LOWER} too small.",
            may_pass=True,
            explains=("V1", "C4.1", "C7.2", "S1.4:unrelated", "S1.5", "S4"),
        ),
    ),
    find=find,
)
