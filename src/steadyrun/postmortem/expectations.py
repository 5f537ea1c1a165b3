"""Section 6: what a repaired run must show, as a list that `steadyrun verify` reads.

Every limit is taken from the run's own numbers before the incident, and `how` says in which way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from steadyrun.postmortem.case import SPAN, WINDOW, Case
from steadyrun.postmortem.measurements import Numbers
from steadyrun.postmortem.remedies import lower_than
from steadyrun.questions.form import FAULT, NOTE
from steadyrun.report.kept_answers import REPLAYED
from steadyrun.signals import around_moment
from steadyrun.signals.declared_schedule import number

Expectation = dict[str, Any]

_ROOM = 2.0  # times the largest gradient norm before
_LEAD = 10  # steps before the incident at which a window begins
_FAR = 200  # steps after the peak up to which the loss is followed
_CLOSE = 0.05  # the template's tolerance
_ENOUGH = 10  # losses before a NaN, and steps after it, for a level to be asked of
_NOISE = 3  # deviations of the moving average
_UNCERTAIN = frozenset({"noise"})


def expectations(case: Case, numbers: Numbers) -> list[Expectation]:
    """All that can be asked of a repaired run."""
    expected = [*_seed(case), *_past(case), *_finite(case)]
    if case.moment.non_finite:
        expected += _after(case)
    elif not case.moment.raised:
        expected += [*_loss(case, numbers), *_gradient(case, numbers)]
    return [*expected, *_walk(case)]


def until(case: Case, name: str = "loss") -> int:
    """The step up to which a repaired run is followed: as far as this run has the series, at most 200 steps on."""
    wanted = case.moment.peak + _FAR
    series = case.signals.raw(name) if case.signals.has(name) else None
    return min(wanted, int(series.steps[-1])) if series is not None and len(series) else wanted


def seed_of(config: Any, inferred: Any) -> float | None:
    """The seed of a run: declared, or else as torch had it."""
    return number(config.get("seed")) if number(config.get("seed")) is not None else number(inferred.get("seed"))


def _seed(case: Case) -> Iterator[Expectation]:
    seed = seed_of(case.signals.config, case.signals.inferred)
    if seed is not None:
        yield {"kind": "seed", "value": int(seed), "how": "the seed of this run: same order of batches, same weights"}


def _past(case: Case) -> Iterator[Expectation]:
    """A run that broke off in a NaN or an exception has to get past that step."""
    if case.moment.non_finite or case.moment.raised:
        yield {"kind": "gets_past", "step": case.moment.step, "how": "the step at which this run broke"}


def _after(case: Case) -> Iterator[Expectation]:
    """After a NaN: that the loss is not merely finite.

    At the step itself nothing is known of how large it should be: where the log of zero was, a repaired run has the
    largest loss of all.
    """
    loss, last = case.signals.maybe("loss"), until(case)
    early = np.empty(0) if loss is None else loss.values[loss.steps < case.clean_until]
    if len(early) < _ENOUGH or last - case.moment.step < _ENOUGH:
        return
    how = f"the highest loss before step {case.clean_until}; a repair may move the level, so nothing stricter"
    window = {"first": case.moment.step + 1, "last": last}
    yield {"kind": "median_at_most", "series": "loss", **window, "limit": float(np.max(early)), "how": how}


def _finite(case: Case) -> Iterator[Expectation]:
    for name in ("loss", "grad_norm"):
        if case.signals.has(name):
            yield {
                "kind": "finite",
                "series": name,
                "until": until(case, name),
                "how": "no value may be NaN or infinite",
            }
    if not case.signals.has("loss"):
        yield {"kind": "finite", "series": "loss", "until": until(case), "how": "record the loss next time"}


def _loss(case: Case, numbers: Numbers) -> Iterator[Expectation]:
    at = case.moment
    if not _about_level(case) or numbers.peak is None or numbers.spike_limit is None:
        return
    sigmas = f"{numbers.spike_sigmas:g} deviations"
    how = f"{sigmas} above the mean of the {WINDOW} losses before step {at.began} (the rule of D2.1)"
    step, value = numbers.peak
    yield {"kind": "loss_at_most", "step": step, "limit": numbers.spike_limit, "was": value, "how": how}
    if numbers.level is not None and numbers.deviation is not None:
        tolerance = max(_CLOSE, _NOISE * numbers.deviation * around_moment.ema_noise(SPAN))
        yield {
            "kind": "within",
            "series": "loss",
            "span": SPAN,
            "first": at.began,
            "until": until(case),
            "of": numbers.level,
            "tolerance": tolerance,
            "how": f"the {SPAN}-step EMA stays at or below that before step {at.began}; tolerance {_CLOSE:g}, or "
            f"{_NOISE} deviations of such an average",
        }


def _about_level(case: Case) -> bool:
    """Whether the loss before is one to come back to; configuration may have made it wrong from the start."""
    code = case.moment.code
    return case.moment.spike is not None or not code or code.startswith("D")


def _gradient(case: Case, numbers: Numbers) -> Iterator[Expectation]:
    norms, at = numbers.gradients_before, case.moment
    if norms is None or not _about_level(case):
        return
    window = {"first": max(0, at.began - _LEAD), "last": min(until(case, "grad_norm"), at.peak + SPAN)}
    was = None if numbers.gradient is None else numbers.gradient[1]
    limit = _ROOM * float(np.max(norms.values))
    how = f"{_ROOM:g} times the largest of the {len(norms)} gradient norms before step {at.began}"
    yield {"kind": "max_in_window", "series": "grad_norm", **window, "limit": limit, "was": was, "how": how}
    clip, new = numbers.clip, lower_than(norms.values, numbers.clip)
    if new is not None and case.signals.has("grad_norm_applied"):
        how = "the new clip threshold; asked only of a run whose threshold was lowered"
        lowered = {"kind": "max_in_window", "series": "grad_norm_applied", **window, "limit": new, "was": clip}
        yield {**lowered, "when_clip_at_most": new, "how": how}


def _walk(case: Case) -> Iterator[Expectation]:
    """The questions that found something about this incident must not find it again."""
    for asked in case.report.walk.path:
        if asked.question.code.startswith(REPLAYED):  # found by a replay of this very incident: no other run has it
            continue
        telling = asked.answer.kind == FAULT or (asked.answer.kind == NOTE and asked.question.code == "D2.3")
        if telling and asked.answer.outcome not in _UNCERTAIN and (asked.answer.kind == FAULT or case.concerns(asked)):
            how = f"the walk answered {asked.answer.kind} ({asked.answer.outcome}) here"
            yield {"kind": "question_passes", "code": asked.question.code, "was": asked.answer.outcome, "how": how}
    if case.moment.non_finite:
        yield {
            "kind": "question_passes",
            "code": "D1.1",
            "was": "non-finite",
            "how": "nothing recorded may be non-finite",
        }
