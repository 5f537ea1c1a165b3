"""S5.1: do weight matrices grow far beyond the norm expected from their shape?"""

from __future__ import annotations

import math

import numpy as np

from steadyrun.questions.form import NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    norms = {name: points for name, points in run.family("spectral_norm/*").items() if len(points) > 1}
    shapes = {str(entry.get("name")): entry.get("shape") for entry in run.listed("initial_weights")}
    growth = {name: _growth(points, shapes.get(name)) for name, points in norms.items()}
    if not growth:
        raise NotApplicable("no spectral norm was sampled twice", "spectral_norm/*")
    worst = max(growth, key=lambda name: growth[name])
    times, points = growth[worst], norms[worst]
    plain = [float(points.values[-1]) > limit["usual"] * float(points.values[0]) for points in norms.values()]
    measured = {"times": times, "past_usual": float(np.mean(plain))}
    step = points.step_at(len(points) - 1)
    facts = (
        f"{worst} grew most: its spectral norm went from {shown(points.values[0])} to {shown(points.values[-1])}, "
        f"{shown(times)} times the larger of its start and the norm expected from its shape"
    )
    if times > limit["times"]:
        return Finding("growing", f"{facts} (limit {limit['times']:g}).", measured, step)
    return Finding("pass", f"{facts} (limit {limit['times']:g}).", measured, step)


def _growth(points: Points, shape: object) -> float:
    """The last norm over the first, or over that of a matrix with standard deviation 1 / sqrt(fan-in), if larger.

    Matrices that start at 0.02 or at zero must grow before they have an effect.
    """
    reference = float(points.values[0])
    if isinstance(shape, list) and len(shape) >= 2 and all(isinstance(n, int) and n > 0 for n in shape):
        reference = max(reference, 1 + math.sqrt(shape[0] / math.prod(shape[1:])))
    return float(points.values[-1]) / reference if reference > 0 else 0.0


QUESTION = Question(
    code="S5.1",
    name="spectral norms stay bounded",
    asks="Has the spectral norm of any weight matrix grown far beyond its start?",
    why="A matrix whose largest singular value grows without bound gives overconfident outputs and fragile gradients: "
    "the learning rate is too high for it, or nothing limits it.",
    needs=("spectral_norm/*", "initial_weights"),
    panel=5,
    thresholds=(
        Threshold(
            name="times",
            value=12,
            unit="times the larger of its start and 1 + sqrt(out / in)",
            meaning="a larger growth is noted",
            seed="2 times the initial value",
            decision="healthy output matrices grow to 16 times a start of N(0, 0.02), which is 3.6 times the norm "
            "expected from their shape; 4.6 after 10,000 steps, 9.2 in a regression on raw numbers; runs that "
            "diverge reach 17",
            of="times",
        ),
        Threshold(
            name="usual",
            value=2,
            unit="times its start",
            meaning="matrices that grew by more are counted in `past_usual`",
            seed="2 times the initial value",
            decision="only counted, since every healthy run of the tutor has such matrices",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="no weight matrix has grown too far"),
        Outcome(
            name="growing",
            answer=NOTE,
            meaning="a weight matrix has grown far beyond its start",
            fix="No action is needed while the loss falls; otherwise lower the learning rate or raise the weight "
            "decay.",
        ),
    ),
    find=find,
)
