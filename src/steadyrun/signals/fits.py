"""Predictions compared with targets in the sampled steps, beside a guess that ignores the inputs."""

from __future__ import annotations

import numpy as np

from steadyrun.signals.run_signals import Signals


def whole_loss(run: Signals, close: float, exact: float) -> str | None:
    """The series `fit/*` that equals the loss in the sampled steps; None if none does.

    `close` is the allowed fraction of the loss, `exact` the allowance for rounding.
    """
    loss = run.points("loss")
    for name in run.matching("fit/*"):
        fit = run.maybe(name)
        if fit is None:
            continue
        there = np.isin(fit.steps, loss.steps)
        given = loss.values[np.isin(loss.steps, fit.steps)]
        if not len(given):
            continue
        large = given >= np.median(given)  # anything is close to a loss near zero
        near = np.abs(fit.values[there] - given) <= close * np.abs(given) + exact
        if np.mean(near[large]) > 1 / 2:
            return name
    return None


def guess_and_ratio(run: Signals, name: str, last: int) -> tuple[float, float] | None:
    """The mean error of a guess, and the ratio of the last predictions' error to it; None for too few samples.

    The first samples know few targets and are omitted.
    """
    fit, guess = run.points(name), run.maybe(name.replace("fit/", "fit_guess/"))
    if guess is None or len(fit) < 2 * last or len(guess) != len(fit):
        return None
    usual = float(np.mean(guess.values[-last:]))
    if usual <= 0:
        return None
    return float(np.mean(guess.values[last:])), float(np.mean(fit.values[-last:])) / usual
