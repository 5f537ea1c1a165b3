"""Predictions against their targets in the sampled steps, beside a guess that ignores the inputs."""

from __future__ import annotations

import numpy as np

from steadyrun.signals.run_signals import Signals


def whole_loss(run: Signals, close: float, exact: float) -> str | None:
    """The comparison with targets that is all of the loss, by its value in the sampled steps; None if none is.

    `close` is a fraction of the loss, `exact` what may differ by rounding.
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
        large = given >= np.median(given)  # where the loss has gone to nothing, everything is close to it
        near = np.abs(fit.values[there] - given) <= close * np.abs(given) + exact
        if np.mean(near[large]) > 1 / 2:
            return name
    return None


def guess_and_ratio(run: Signals, name: str, last: int) -> tuple[float, float] | None:
    """What a guess costs on average, and the error of the last predictions against it; None for too few samples.

    The first samples know few targets and are left out.
    """
    fit, guess = run.points(name), run.maybe(name.replace("fit/", "fit_guess/"))
    if guess is None or len(fit) < 2 * last or len(guess) != len(fit):
        return None
    usual = float(np.mean(guess.values[-last:]))
    if usual <= 0:
        return None
    return float(np.mean(guess.values[last:])), float(np.mean(fit.values[-last:])) / usual
