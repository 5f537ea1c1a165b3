"""D1.3: the first series that became non-finite."""

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
        raise NotApplicable("all recorded values are finite")
    step, name = run.first_nonfinite
    earlier = {kind: first for kind in _KINDS if (first := _first(run, kind, step)) is not None}
    loss_is_finite = _finite_at(run, "loss", step)
    led_up = _led_up(run, step)
    if "parameter" in earlier and earlier["parameter"][0] < step:
        at, series = earlier["parameter"]
        return Finding(
            "parameter-first",
            f"{series} is not finite at step {at}, before the loss and the gradient. {led_up}.",
            step=at,
        )
    if "activation" in earlier and earlier["activation"][0] <= step:
        at, series = earlier["activation"]
        return Finding("activation-first", f"{series} is not finite at step {at}. {led_up}.", {"step": float(at)}, at)
    if name == "grad_norm" and loss_is_finite:
        return Finding(
            "gradient-first",
            f"At step {step} {_loss_there(run, step)}, but its gradient is not finite. {led_up}.",
            {"step": float(step)},
            step,
        )
    return Finding(
        "loss-first", f"At step {step} the loss itself is not finite. {led_up}.", {"step": float(step)}, step
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
        return "the logged loss is exactly 0 (loggers that filter NaN print 0)"
    return "the loss is finite"


def _finite_at(run: Signals, name: str, step: int) -> bool:
    if not run.has(name):
        return True
    series = run.raw(name)
    return bool(np.all(np.isfinite(series.values[series.steps == step])))


def _led_up(run: Signals, step: int) -> str:
    """In words: the last finite losses and gradient norms before it."""
    parts = []
    for name, words in (("loss", "losses"), ("grad_norm", "gradient norms")):
        points = run.maybe(name)
        last: Points | None = points.where(points.steps < step) if points is not None else None
        if last is not None and len(last):
            values = ", ".join(shown(value) for value in last.values[-_SHOWN:])
            parts.append(f"the last {words} before it: {values}")
    val = run.raw("val_loss") if run.has("val_loss") else None
    bad = [] if val is None else val.steps[~np.isfinite(val.values) & (val.steps < step)].tolist()
    if bad:
        parts.append(f"the validation loss was already not finite at step {bad[0]}")
    text = "; ".join(parts) or "no earlier value is recorded"
    return f"{text[0].upper()}{text[1:]}"


QUESTION = Question(
    code="D1.3",
    name="origin of the non-finite value",
    asks="Which became non-finite first: the loss, the gradient, an activation or a parameter?",
    why="The first non-finite series points to the part of the program to check. Recording samples activations and "
    "parameters; `steadyrun replay` re-runs the step and names the layer.",
    needs=("loss", "grad_norm", "activation/*", "block_param_norm/*"),
    panel=1,
    thresholds=(),
    outcomes=(
        Outcome(
            name="loss-first",
            answer=FAULT,
            meaning="the loss itself became non-finite first",
            fix="Compute the loss with log_softmax (cross_entropy takes logits), not as the log of a softmax. Guard "
            "means over nothing (0 / 0 if every target is masked).",
        ),
        Outcome(
            name="gradient-first",
            answer=FAULT,
            meaning="the loss is finite, but its gradient is not",
            fix="Look for sqrt, norm or a division at zero, and for torch.where() with a non-finite branch. Clipping "
            "gradients by value (±100) contains it.",
            panel=3,
        ),
        Outcome(
            name="activation-first",
            answer=FAULT,
            meaning="a layer's output became non-finite first",
            fix="Check that layer: missing normalisation, weights that grew too large, or a mask that leaves nothing "
            "to attend to.",
            panel=4,
        ),
        Outcome(
            name="parameter-first",
            answer=FAULT,
            meaning="a parameter became non-finite before the loss",
            fix="Check the update before that step: lower the learning rate, and look for a non-finite optimizer "
            "state.",
            panel=5,
        ),
    ),
    find=find,
)
