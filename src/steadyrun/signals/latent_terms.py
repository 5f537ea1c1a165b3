"""The two terms of a variational autoencoder by their names: the divergence from the prior and the reconstruction."""

from __future__ import annotations

from collections.abc import Iterable

from steadyrun.signals.run_signals import Points, Signals
from steadyrun.signals.success import is_held_out, words_of

DIVERGENCES = frozenset({"kl", "kld", "kl_div", "kldiv", "klloss"})
RECONSTRUCTIONS = frozenset({"recon", "reconstruction", "rec", "reconstructed", "recons"})
_SETTINGS = frozenset({"weight", "coef", "coeff", "factor", "anneal", "annealing", "beta", "scale", "lambda", "acc"})


def latent_terms(run: Signals, fewest: float) -> tuple[Points, Points] | None:
    """The series of both terms in training, each with enough points; None otherwise."""
    found = [_shortest(run, words, fewest) for words in (DIVERGENCES, RECONSTRUCTIONS)]
    return None if found[0] is None or found[1] is None else (found[0], found[1])


def _shortest(run: Signals, wanted: Iterable[str], fewest: float) -> Points | None:
    fitting = [name for name in run.own if (words := words_of(name)) & frozenset(wanted) and not words & _SETTINGS]
    name = min((name for name in fitting if not is_held_out(name)), key=lambda name: (len(name), name), default=None)
    points = None if name is None else run.maybe(name)
    return points if points is not None and len(points) >= fewest else None
