"""S5.1: do weight matrices grow past what their shape lets one expect?"""

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
        f"{worst} has grown most: {shown(points.values[0])} at step {points.step_at(0)}, {shown(points.values[-1])} at "
        f"step {step}, {shown(times)} times the larger of its start and what its shape lets one expect; "
        f"{sum(plain)} of {len(plain)} matrices are past {limit['usual']:g} times their start"
    )
    if times > limit["times"]:
        return Finding("growing", f"{facts} (limit {limit['times']:g}).", measured, step)
    return Finding("pass", f"{facts} (limit {limit['times']:g}).", measured, step)


def _growth(points: Points, shape: object) -> float:
    """The last norm over the first, or over that of a matrix drawn with deviation 1 / sqrt(fan-in), if larger.

    Matrices that start at 0.02 or at nothing have to grow before they do anything.
    """
    reference = float(points.values[0])
    if isinstance(shape, list) and len(shape) >= 2 and all(isinstance(n, int) and n > 0 for n in shape):
        reference = max(reference, 1 + math.sqrt(shape[0] / math.prod(shape[1:])))
    return float(points.values[-1]) / reference if reference > 0 else 0.0


QUESTION = Question(
    code="S5.1",
    name="spectral growth",
    asks="Has the spectral norm of any weight matrix grown far past its start?",
    why="A matrix whose largest singular value runs away makes confident outputs and fragile gradients: the learning "
    "rate is too high for it, or nothing holds it back.",
    needs=("spectral_norm/*", "initial_weights"),
    panel=5,
    thresholds=(
        Threshold(
            name="times",
            value=12,
            unit="times the larger of its start and 1 + sqrt(out / in)",
            meaning="growth worth a note",
            seed="2 times the initial value",
            decision="healthy output matrices grow to 16 times a start of N(0, 0.02), which is 3.6 times what "
            "their shape lets "
            "one expect; 4.6 after 10,000 steps, 9.2 in a regression on raw numbers; runs that diverge come to 17",
            of="times",
        ),
        Threshold(
            name="usual",
            value=2,
            unit="times its start",
            meaning="growth that is counted",
            seed="2 times the initial value",
            decision="as specified: said in the answer, no more, since every healthy run of the tutor has such "
            "matrices",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="no matrix has run away"),
        Outcome(name="growing", answer=NOTE, meaning="a matrix has grown far past its start"),
    ),
    find=find,
)
