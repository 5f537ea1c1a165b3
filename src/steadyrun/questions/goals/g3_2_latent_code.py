"""G3.2: does the KL term of a VAE stay bounded?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.goals.common import MANY, ROWS
from steadyrun.signals.curves import Floats
from steadyrun.signals.latent_terms import latent_terms
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.policy_metrics import last_level, preferences
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.signals.success import trains_policy, words_of
from steadyrun.text import shown

_FIFTH = 5  # the last part of the steps


def find(run: Signals, limit: Limits) -> Finding:
    terms = None if trains_policy(run) or preferences(run) else latent_terms(run, limit["many"])
    if terms is None:
        raise NotApplicable("no KL term was logged often enough beside a reconstruction")
    kl, recon = terms
    last, before = last_level(kl), float(np.median(kl.values[: len(kl) // 2]))
    measured = {"before": before, "end": last}
    words = f"The KL term is {shown(last)} at the end; its median in the first half is {shown(before)}"
    ends = _ends(run, kl, recon, limit)
    if ends is not None:
        weights = (ends[0] - ends[2]) / ends[1]
        measured["weight"] = float(np.median(weights))
        if float(np.max(weights)) < 0 and float(np.ptp(weights)) < limit["steady"] * -measured["weight"]:
            return Finding("subtracted", f"{words}; its weight in the loss is {shown(measured['weight'])}.", measured)
    if before > 0 and last > limit["runaway"] * before:
        return Finding("runaway", f"{words} (limit {limit['runaway']:g} times).", measured)
    same = ends is not None and bool(np.all(np.abs(ends[0] - ends[2]) < limit["counts"] * np.abs(ends[2])))
    if same and (last > limit["grows"] * before > 0 or _weighted(run)):
        return Finding("not-counted", f"{words}, and the loss equals the reconstruction.", measured)
    return Finding("bounded", f"{words}.", measured)


def _weighted(run: Signals) -> bool:
    """Whether a weight above zero is declared or logged for the KL term."""
    declared = [run.declared(name) for name in ("beta", "kl_weight", "kl_coef")]
    logged = [run.maybe(name) for name in run.own if {"kl", "weight"} <= words_of(name)]
    last = [float(points.values[-1]) for points in logged if points is not None]
    return any(weight > 0 for weight in [*last, *(each for each in declared if each is not None)])


def _ends(run: Signals, kl: Points, recon: Points, limit: Limits) -> tuple[Floats, Floats, Floats] | None:
    """Loss, KL term and reconstruction of the last steps that have all three; None if these are few."""
    loss = run.maybe("loss")
    if loss is None:
        return None
    steps = np.intersect1d(np.intersect1d(loss.steps, recon.steps), kl.steps[kl.values > 0])
    steps = steps[-max(limit.count("rows"), len(recon) // _FIFTH) :]
    if len(steps) < limit["rows"]:
        return None
    whole, divergence, rest = (each.values[np.isin(each.steps, steps)] for each in (loss, kl, recon))
    return whole, divergence, rest


QUESTION = Question(
    code="G3.2",
    name="latent code is bounded",
    asks="Does the KL term of a variational autoencoder stay bounded?",
    why="A KL term that grows without bound makes the code a memory of each example: reconstructions are good, samples "
    "from the prior are not. V1.2 reports a KL term that vanishes.",
    needs=("kl",),
    panel=1,
    thresholds=(
        ROWS,
        MANY,
        Threshold(
            name="runaway",
            value=10,
            unit="times the median of the first half",
            meaning="a KL term beyond this runs away",
            seed="",
            decision="as in G2.3",
        ),
        Threshold(
            name="counts",
            value=1e-4,
            unit="of the reconstruction",
            meaning="if loss and reconstruction differ by less, the KL term is not in the loss",
            seed="",
            decision="chosen: weights of 1e-6 are used on purpose, with KL terms of thousands of nats",
        ),
        Threshold(
            name="steady",
            value=0.1,
            unit="of the weight",
            meaning="if (loss - reconstruction) / KL varies by less, it is the weight of the KL term",
            seed="",
            decision="chosen: other terms of a loss do not follow the KL term",
        ),
        Threshold(
            name="grows",
            value=2,
            unit="times the median of the first half",
            meaning="a KL term beyond this still grows",
            seed="",
            decision="chosen: 5.4 in a VAE without the KL term in its loss",
        ),
    ),
    outcomes=(
        Outcome(name="bounded", answer=PASS, meaning="the KL term stays bounded"),
        Outcome(
            name="not-counted",
            answer=SUSPECT,
            meaning="the KL term is logged but not part of the loss, and it grows",
            fix="Add the KL term to the loss: loss = recon + beta * kl, with beta above zero.",
            experiment="Decode 16 samples from the prior. If they look unlike the data, the code does not follow the "
            "prior.",
            may_pass=True,
        ),
        Outcome(
            name="subtracted",
            answer=FAULT,
            meaning="the KL term is subtracted from the loss: training makes it as large as possible",
            fix="Add the KL term: loss = recon + beta * kl, with kl = -0.5 * (1 + logvar - mean² - exp(logvar)).",
            explains=("V1", "D1.3", "D4"),
        ),
        Outcome(
            name="runaway",
            answer=SUSPECT,
            meaning="the KL term runs away",
            fix="Check the formula of the KL term: -0.5 * (1 + logvar - mean² - exp(logvar)). Then lower the learning "
            "rate and clamp the log-variance.",
            experiment="Train 200 steps with the KL term alone. If it does not fall to zero, its sign or its formula "
            "is wrong.",
            may_pass=True,
            explains=("V1", "D1.3", "D4"),
        ),
    ),
    find=find,
    always=True,
    special=True,
)
