"""S5.2: is the declared weight decay applied, and do weights stay bounded?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.curves import trend
from steadyrun.signals.declared_schedule import number
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    settings = _settings(run)
    declared = run.declared("weight_decay") or 0.0
    measured_decay = _measured(run)
    measured = {"declared": declared, "largest_setting": max(settings, default=0.0)}
    if measured_decay is not None:
        measured["measured"] = measured_decay
    if declared > 0 and settings and max(settings) == 0:
        words = "was not measured" if measured_decay is None else f"is {shown(measured_decay)} in the updates"
        facts = f"The run declares weight_decay {declared:g}, but every param group sets it to 0; the decay {words}"
        if measured_decay is not None and measured_decay >= limit["decay"] * declared:
            return Finding("pass", f"{facts}, so it is applied in another way.", measured)
        if measured_decay is None or not run.config.get("no_decay"):
            message = f"{facts}. A penalty in the loss, or decay by hand, would not show."
            return Finding("decay-not-seen", message, measured, 0)
        message = (
            f"{facts} (expected at least {limit['decay'] * declared:g}). no_decay declares which parameters are exempt."
        )
        return Finding("declared-decay-missing", message, measured, 0)
    growth = _growth(run, limit)
    if growth is None:
        if not settings:
            raise NotApplicable("no optimizer has a weight_decay setting, and too few weight norms were sampled")
        return Finding("pass", f"{_words(settings, declared)}.", measured)
    times, rising, norms = growth
    measured["times"] = times
    step = norms.step_at(len(norms) - 1)
    facts = f"{_words(settings, declared)}. The norm of all weights is {shown(times)} times its start"
    if times > limit["times"] and rising:
        message = f"{facts} (limit {limit['times']:g}), and still rises at the end."
        return Finding("growing", message, measured, step)
    return Finding("pass", f"{facts}.", measured, step)


def _settings(run: Signals) -> list[float]:
    """The weight decay of every param group; empty if any group lacks the setting or has no number for it."""
    groups = run.listed("param_groups")
    if not groups:
        raise MissingSignal("param_groups")
    decays = [_setting(group.get("settings")) for group in groups]
    return [value for value in decays if value is not None] if None not in decays else []


def _setting(settings: object) -> float | None:
    return number(settings.get("weight_decay")) if isinstance(settings, dict) else None


def _measured(run: Signals) -> float | None:
    """The largest decay measured in the updates of a param group; None if none was measured."""
    decays = [points for name in run.matching("update_decay/*") if (points := run.maybe(name)) is not None]
    return max((float(np.median(points.values)) for points in decays), default=None)


def _words(settings: list[float], declared: float) -> str:
    if not settings:
        return "Not every optimizer has a weight_decay setting"
    spread = f"{min(settings):g} to {max(settings):g}" if min(settings) < max(settings) else f"{settings[0]:g}"
    return f"Weight decay is {spread} in the param groups" + (f" ({declared:g} declared)" if declared else "")


def _growth(run: Signals, limit: Limits) -> tuple[float, bool, Points] | None:
    """The norm of all weights: its growth, whether it surely still rises at the end, and the series."""
    parts = [points for name in run.matching("block_param_norm/*") if (points := run.maybe(name)) is not None]
    parts = [points for points in parts if len(points) == len(parts[0])]
    if not parts or len(parts[0]) < limit["samples"]:
        return None
    norms = Points("norm", parts[0].steps, np.sqrt(np.sum([points.values**2 for points in parts], axis=0)))
    if norms.values[0] <= 0:
        return None
    later = norms.from_step((norms.steps[0] + norms.steps[-1]) / 2)
    last = trend(later.steps, later.values)
    rising = last.t > limit["sure"] and last.end > limit["rising"] * last.start
    return float(norms.values[-1] / norms.values[0]), rising, norms


QUESTION = Question(
    code="S5.2",
    name="weight decay is applied",
    asks="Does the optimizer apply the declared weight decay, and do weight norms stay bounded?",
    why="Without the intended decay nothing pulls weights back: their norms grow as long as training lasts, and the "
    "model overfits. The loss of a short run does not show it.",
    needs=("param_groups", "weight_decay", "no_decay", "update_decay/*", "block_param_norm/*"),
    panel=5,
    thresholds=(
        Threshold(
            name="decay",
            value=0.1,
            unit="of the declared decay",
            meaning="a smaller decay in the updates counts as none",
            seed="weight decay missing",
            decision="an Adam update shows its decay to within 2%; without decay, 0.002 of the declared 0.1",
        ),
        Threshold(
            name="times",
            value=2,
            unit="times the norm of all weights at the start",
            meaning="a larger growth is noted if it continues",
            seed="grow without bound",
            decision="healthy tutor runs grow 1.2 times, 1.8 in 10,000 steps; a regression grows 3.3 times, then stops",
            of="times",
        ),
        Threshold(
            name="sure",
            value=4.5,
            unit="times its standard error",
            meaning="a larger trend still rises",
            seed="",
            decision="one in a thousand series without a trend passes it",
        ),
        Threshold(
            name="rising",
            value=1.05,
            unit="times",
            meaning="how far the norm must have risen in the second half",
            seed="",
            decision="a smaller rise does not count",
        ),
        Threshold(
            name="samples",
            value=4,
            unit="sampled steps",
            meaning="with fewer, growth is not judged",
            seed="",
            decision="the second half needs two",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="weight decay is as declared, and weights stay bounded"),
        Outcome(
            name="decay-not-seen",
            answer=NOTE,
            meaning="the declared weight decay is not in the optimizer",
            fix="Pass weight_decay to the optimizer's param groups. No action is needed if decay is part of the loss "
            "or done by hand.",
        ),
        Outcome(
            name="growing",
            answer=NOTE,
            meaning="the norm of all weights grows without bound",
            fix="No action is needed while the loss falls; otherwise raise the weight decay or lower the learning "
            "rate.",
        ),
        Outcome(
            name="declared-decay-missing",
            answer=FAULT,
            meaning="the declared weight decay is not applied",
            fix="Pass the declared weight_decay to the optimizer's param groups. If the penalty is part of the loss, "
            "or the weights are shrunk by hand, declare weight_decay 0.",
        ),
    ),
    find=find,
)
