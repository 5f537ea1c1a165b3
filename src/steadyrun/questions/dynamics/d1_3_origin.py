"""D1.3: what became non-finite first?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, Finding, Limits, Outcome, Question
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.text import shown

_KINDS = {
    "activation": ("activation/*", "activation_std/*"),
    "parameter": ("block_param_norm/*", "spectral_norm/*"),
}
_SHOWN = 5


def find(run: Signals, _limit: Limits) -> Finding:
    if run.first_nonfinite is None:
        raise NotApplicable("nothing that was recorded is non-finite")
    step, name = run.first_nonfinite
    earlier = {kind: first for kind in _KINDS if (first := _first(run, kind, step)) is not None}
    loss_is_finite = _finite_at(run, "loss", step)
    led_up = _led_up(run, step)
    if "parameter" in earlier and earlier["parameter"][0] < step:
        at, series = earlier["parameter"]
        return Finding(
            "parameter-first", f"{series} is not finite at step {at}, before anything else; {led_up}.", step=at
        )
    if "activation" in earlier and earlier["activation"][0] <= step:
        at, series = earlier["activation"]
        return Finding("activation-first", f"{series} is not finite at step {at}; {led_up}.", {"step": float(at)}, at)
    if name == "grad_norm" and loss_is_finite:
        return Finding(
            "gradient-first",
            f"at step {step} {_loss_there(run, step)} and its gradient is not finite; {led_up}.",
            {"step": float(step)},
            step,
        )
    return Finding(
        "loss-first", f"at step {step} the loss itself is not finite; {led_up}.", {"step": float(step)}, step
    )


def _first(run: Signals, kind: str, until: int) -> tuple[int, str] | None:
    """The first non-finite value of a kind of series, up to and including a step."""
    firsts = []
    for pattern in _KINDS[kind]:
        for name in run.matching(pattern):
            series = run.raw(name)
            bad = series.steps[~np.isfinite(series.values) & (series.steps <= until)]
            if len(bad):
                firsts.append((int(bad[0]), name))
    return min(firsts, default=None)


def _loss_there(run: Signals, step: int) -> str:
    values = run.raw("loss").values[run.raw("loss").steps == step] if run.has("loss") else np.array([])
    if len(values) and values[-1] == 0:
        return "the logged loss is exactly 0, as loggers print that filter NaN,"
    return "the loss is finite"


def _finite_at(run: Signals, name: str, step: int) -> bool:
    if not run.has(name):
        return True
    series = run.raw(name)
    return bool(np.all(np.isfinite(series.values[series.steps == step])))


def _led_up(run: Signals, step: int) -> str:
    """The last finite losses and gradient norms before it."""
    parts = []
    for name, words in (("loss", "loss"), ("grad_norm", "gradient norm")):
        points = run.maybe(name)
        last: Points | None = points.where(points.steps < step) if points is not None else None
        if last is not None and len(last):
            values = ", ".join(shown(value) for value in last.values[-_SHOWN:])
            parts.append(f"{words} before it: {values}")
    val = run.raw("val_loss") if run.has("val_loss") else None
    bad = [] if val is None else val.steps[~np.isfinite(val.values) & (val.steps < step)].tolist()
    if bad:
        parts.append(f"the validation loss was not finite at step {bad[0]} already")
    return "; ".join(parts) or "nothing was recorded before it"


QUESTION = Question(
    code="D1.3",
    name="origin of the non-finite value",
    asks="Which became non-finite first: loss, gradient, an activation or a parameter?",
    why="What came first names the part of the program to look at. Recording samples activations and parameters; to "
    "name "
    "the layer for certain, the step is executed again.",
    needs=("loss", "grad_norm", "activation/*", "block_param_norm/*"),
    panel=1,
    thresholds=(),
    outcomes=(
        Outcome(
            name="loss-first",
            answer=FAULT,
            meaning="the loss has no finite value",
            fix="Compute it with log_softmax (cross_entropy takes logits) instead of the log of a softmax, and "
            "guard means "
            "over nothing (0 / 0 when every target is masked).",
        ),
        Outcome(
            name="gradient-first",
            answer=FAULT,
            meaning="the loss is finite and its gradient is not",
            fix="Look for sqrt, norm or division at zero and for where() over a branch that is not finite; clipping "
            "gradients "
            "by value (±100) contains it.",
            panel=3,
        ),
        Outcome(
            name="activation-first",
            answer=FAULT,
            meaning="a layer's output is not finite",
            fix="Look at that layer: normalisation missing, weights grown too large, a mask that leaves nothing to "
            "attend to.",
            panel=4,
        ),
        Outcome(
            name="parameter-first",
            answer=FAULT,
            meaning="parameters were destroyed before the loss showed it",
            fix="The update before that step did it: a learning rate too high, an optimizer state that is not finite.",
            panel=5,
        ),
    ),
    find=find,
)
