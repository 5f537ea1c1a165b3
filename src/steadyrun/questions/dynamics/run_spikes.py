"""The loss spikes of a run, found once for the questions of section D2."""

from __future__ import annotations

from steadyrun.questions.form import Limits
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.spikes import Spike, spikes
from steadyrun.text import normally, shown

WINDOW, SIGMAS, BACK, SETTLED, WITHIN = 100, 3.0, 0.5, 5, 50


def window_of(run: Signals, limit: Limits) -> int:
    """The window before a spike in points, by the limits of D2.1: long enough for a standard deviation."""
    from steadyrun.questions.dynamics import d2_1_spikes  # it imports this file

    rule = limit.of(d2_1_spikes.QUESTION)
    return run.stretch(run.points("loss"), int(rule["window"]), rule.count("points"))


def find_spikes(run: Signals, limit: Limits) -> list[Spike]:
    """All spikes by the rule of D2.1; `MissingSignal` if the record is too short for its window.

    The limits are those of D2.1 and D2.2 in the same walk as `limit`.
    """
    from steadyrun.questions.dynamics import d2_1_spikes, d2_2_recovery  # they import this file

    rule, over = limit.of(d2_1_spikes.QUESTION), limit.of(d2_2_recovery.QUESTION)
    loss, sigmas = run.points("loss"), rule["sigmas"]
    back, settled = over["back"], over.count("settled")
    window = window_of(run, limit)
    if len(loss) <= window:
        how = "let it run on" if run.running else "train for longer"
        raise MissingSignal("loss", f"{len(loss)} losses are recorded; more than {window} are needed", how)
    key = ("spikes", window, sigmas, back, settled)
    if key not in run.memo:
        run.memo[key] = spikes(loss, window, sigmas, back, settled)
    run_spikes: list[Spike] = run.memo[key]
    return run_spikes


def height(spike: Spike) -> str:
    """A spike in words: its peak and the level before it, such as "4.23 at step 1500, normally 0.48 ± 0.03"."""
    return f"{shown(spike.value)} at step {spike.peak_step}, {normally(spike.level, spike.deviation)}"


def beyond(spike: Spike, noise: float) -> str:
    """In words: a spike's height in standard deviations beside that of noise; constant losses before it have none."""
    if spike.deviation <= 0:
        return "the losses before it are constant"
    return f"{shown(spike.sigmas)} standard deviations, noise reaches {noise:g}"


def stays(run: Signals, spike: Spike, limit: Limits) -> bool:
    """Whether the loss did not recover within the steps that D2.2 allows."""
    from steadyrun.questions.dynamics import d2_2_recovery  # it imports this file

    loss, rule = run.points("loss"), limit.of(d2_2_recovery.QUESTION)
    length = spike.length if spike.length is not None else len(loss) - spike.start
    return length > run.stretch(loss, rule["within"], rule.count("points"))
