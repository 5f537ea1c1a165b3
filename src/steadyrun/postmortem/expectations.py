"""Section 6: what a fixed run must show, as a list that `steadyrun verify` reads.

Every limit comes from the run's own numbers before the incident, and `how` says how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from steadyrun.postmortem.case import SPAN, WINDOW, Case
from steadyrun.postmortem.measurements import Numbers
from steadyrun.postmortem.remedies import lower_than
from steadyrun.questions.aliases import outcome_of
from steadyrun.questions.form import CANNOT_TELL, FAULT, NOT_APPLICABLE, NOTE
from steadyrun.records import Series
from steadyrun.report.kept_answers import REPLAYED
from steadyrun.report.report import Report
from steadyrun.signals import spikes
from steadyrun.signals.curves import Floats
from steadyrun.signals.declared_schedule import number
from steadyrun.signals.run_signals import Signals
from steadyrun.store.incident_files import text, to_number
from steadyrun.text import shown

Expectation = dict[str, Any]

_ROOM = 2.0  # factor on the largest gradient norm before
_LEAD = 10  # steps before the incident at which a window begins
_FAR = 200  # steps after the peak that the loss is checked for
_CLOSE = 0.05  # the tolerance of the template
_ENOUGH = 10  # losses before and steps after a NaN that a level needs
_NOISE = 3  # σ of the EMA
_UNCERTAIN = frozenset({"noise"})


def expectations(case: Case, numbers: Numbers) -> list[Expectation]:
    """All expectations of a fixed run."""
    expected = [*_seed(case), *_past(case), *_finite(case)]
    if case.moment.non_finite:
        expected += _after(case)
    elif not case.moment.raised:
        expected += [*_loss(case, numbers), *_gradient(case, numbers)]
    return [*expected, *_walk(case)]


def until(case: Case, name: str = "loss") -> int:
    """The last step to check in a fixed run: as far as this run has the series, at most 200 steps later."""
    wanted = case.moment.peak + _FAR
    series = case.signals.raw(name) if case.signals.has(name) else None
    return min(wanted, int(series.steps[-1])) if series is not None and len(series) else wanted


def seed_of(config: Any, inferred: Any) -> float | None:
    """The seed of a run: declared, or else torch's."""
    return number(config.get("seed")) if number(config.get("seed")) is not None else number(inferred.get("seed"))


def _seed(case: Case) -> Iterator[Expectation]:
    seed = seed_of(case.signals.config, case.signals.inferred)
    if seed is not None:
        yield {
            "kind": "seed",
            "value": int(seed),
            "how": "the same seed gives the same weights and the same order of batches",
        }


def _past(case: Case) -> Iterator[Expectation]:
    """A run that ended with a NaN or an exception must continue after that step."""
    if case.moment.non_finite or case.moment.raised:
        yield {"kind": "gets_past", "step": case.moment.step, "how": "this run broke at that step"}


def _after(case: Case) -> Iterator[Expectation]:
    """After a NaN, the loss must be normal, not merely finite.

    At the step itself the right size is unknown: after fixing a log of zero, a fixed run has its largest loss there.
    """
    loss, last = case.signals.maybe("loss"), until(case)
    early = np.empty(0) if loss is None else loss.values[loss.steps < case.clean_until]
    if len(early) < _ENOUGH or last - case.moment.step < _ENOUGH:
        return
    how = f"the highest loss before step {case.clean_until}; a fix may change the usual level"
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
    sigmas = f"{numbers.spike_sigmas:g} standard deviations"
    how = f"{sigmas} above the mean of the {WINDOW} losses before step {at.began}, as in D2.1"
    step, value = numbers.peak
    yield {"kind": "loss_at_most", "step": step, "limit": numbers.spike_limit, "was": value, "how": how}
    if numbers.level is not None and numbers.deviation is not None:
        tolerance = max(_CLOSE, _NOISE * numbers.deviation * spikes.ema_noise(SPAN))
        yield {
            "kind": "within",
            "series": "loss",
            "span": SPAN,
            "first": at.began,
            "until": until(case),
            "of": numbers.level,
            "tolerance": tolerance,
            "how": f"the {SPAN}-step EMA must not exceed its value before step {at.began}; tolerance {_CLOSE:g}, or "
            f"{_NOISE} standard deviations of the EMA if that is larger",
        }


def _about_level(case: Case) -> bool:
    """Whether the loss before is a level to return to; a wrong config may have made it bad from the start."""
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
        how = "the new clip threshold; checked only if the new run lowers the threshold"
        lowered = {"kind": "max_in_window", "series": "grad_norm_applied", **window, "limit": new, "was": clip}
        yield {**lowered, "when_clip_at_most": new, "how": how}


def _walk(case: Case) -> Iterator[Expectation]:
    """The questions with a finding about this incident must not find it again."""
    for asked in case.report.walk.path:
        if asked.question.code.startswith(REPLAYED):  # found by a replay of this incident: no other run has it
            continue
        telling = asked.answer.kind == FAULT or (asked.answer.kind == NOTE and asked.question.code == "D2.3")
        if telling and asked.answer.outcome not in _UNCERTAIN and (asked.answer.kind == FAULT or case.concerns(asked)):
            how = f"`steadyrun check` answers {asked.answer.kind} ({asked.answer.outcome}) for this run"
            yield {"kind": "question_passes", "code": asked.question.code, "was": asked.answer.outcome, "how": how}
    if case.moment.non_finite:
        yield {
            "kind": "question_passes",
            "code": "D1.1",
            "was": "non-finite",
            "how": "no recorded value may be NaN or infinite",
        }


# Checking one expectation in one run, by its kind.


HOLDS, FAILS, CANNOT, SKIPPED = "pass", "fail", "cannot-tell", "skipped"


@dataclass(frozen=True)
class Checked:
    """One expectation and its result in the new run."""

    kind: str
    expectation: str
    limit: str
    measured: str
    verdict: str
    why: str = ""


def hold(expected: Mapping[str, Any], signals: Signals, report: Report) -> Checked:
    """Check one expectation in a run."""
    kind = text(expected, "kind")
    return KINDS[kind].hold(expected, signals, report)


def _num(expected: Mapping[str, Any], name: str) -> float:
    value = to_number(expected.get(name))
    assert value is not None  # validated when it was read
    return value


def _check_seed(expected: Mapping[str, Any], signals: Signals, _report: Report) -> Checked:
    wanted, mine = _num(expected, "value"), seed_of(signals.config, signals.inferred)
    limit = f"{wanted:g}"
    if mine is None:
        return Checked("seed", "the same seed", limit, "none", CANNOT, "the new run declares no seed")
    return Checked("seed", "the same seed", limit, f"{mine:g}", HOLDS if mine == wanted else FAILS)


def _check_finite(expected: Mapping[str, Any], signals: Signals, _report: Report) -> Checked:
    name, last = text(expected, "series"), _num(expected, "until")
    words = f"{name} is finite to step {last:.0f}"
    if (series := _series(signals, name)) is None:
        return Checked("finite", words, "0 not finite", "", CANNOT, f"the new run has no series {name}")
    bad = np.setdiff1d(signals.not_finite(name)[0], _skipped(signals))
    early = bad[bad <= last]
    if len(early):
        return Checked("finite", words, "0 not finite", f"{len(early)} not finite, first at step {early[0]}", FAILS)
    return _long_enough("finite", words, "0 not finite", "0 not finite", series, last)


def _gets_past(expected: Mapping[str, Any], signals: Signals, _report: Report) -> Checked:
    step = int(_num(expected, "step"))
    words = f"the run continues after step {step} with a finite loss"
    series = _series(signals, "loss")
    if series is None or not len(series):
        return Checked("gets_past", words, "finite", "", CANNOT, "the new run has no series loss")
    end = int(series.steps[-1])
    reached = int(series.steps[min(int(np.searchsorted(series.steps, step)), len(series) - 1)])
    bad = np.setdiff1d(signals.not_finite("loss")[0], _skipped(signals))
    if len(bad) and bad[0] <= reached:
        return Checked("gets_past", words, "finite", f"not finite at step {bad[0]}", FAILS)
    if reached < step and (failure := signals.about("failure")):
        return Checked("gets_past", words, "finite", f"ended after step {end} with {failure.get('type')}", FAILS)
    return _long_enough("gets_past", words, "finite", f"finite at step {reached}", series, step)


def _median_at_most(expected: Mapping[str, Any], signals: Signals, _report: Report) -> Checked:
    name, first, last, limit = text(expected, "series"), *(_num(expected, key) for key in ("first", "last", "limit"))
    words, shown_limit = f"median of {name}, steps {first:.0f} to {last:.0f}", f"at most {shown(limit)}"
    series = _series(signals, name)
    there = None if series is None else _taken(signals, series, first, last)
    if series is None or there is None or not len(there):
        return Checked("median_at_most", words, shown_limit, "", CANNOT, f"the new run has no {name} in these steps")
    middle = float(np.median(np.where(np.isfinite(there), there, np.inf)))
    if middle > limit:
        return Checked("median_at_most", words, shown_limit, shown(middle), FAILS)
    return _long_enough("median_at_most", words, shown_limit, shown(middle), series, last)


def _loss_at_most(expected: Mapping[str, Any], signals: Signals, _report: Report) -> Checked:
    step, limit = int(_num(expected, "step")), _num(expected, "limit")
    words, shown_limit = f"loss at step {step}{_was(expected)}", f"at most {shown(limit)}"
    series = _series(signals, "loss")
    loss = None if series is None else spikes.value_at(series, step)
    if loss is None:
        return Checked("loss_at_most", words, shown_limit, "", CANNOT, f"the new run has no loss at step {step}")
    return Checked("loss_at_most", words, shown_limit, shown(loss), HOLDS if loss <= limit else FAILS)


def _max_in_window(expected: Mapping[str, Any], signals: Signals, _report: Report) -> Checked:
    name, first, last, limit = text(expected, "series"), *(_num(expected, key) for key in ("first", "last", "limit"))
    words, shown_limit = f"largest {name}, steps {first:.0f} to {last:.0f}{_was(expected)}", f"at most {shown(limit)}"
    lowered = to_number(expected.get("when_clip_at_most"))
    if lowered is not None and not _clipped_at(signals, lowered):
        return Checked(
            "max_in_window", words, shown_limit, "", SKIPPED, "the new run does not lower the clip threshold"
        )
    series = _series(signals, name)
    there = None if series is None else _taken(signals, series, first, last)
    if series is None or there is None or not len(there):
        return Checked("max_in_window", words, shown_limit, "", CANNOT, f"the new run has no {name} in these steps")
    worst = float(np.max(np.where(np.isfinite(there), there, np.inf)))
    if worst > limit * (1 + 1e-6):
        return Checked("max_in_window", words, shown_limit, shown(worst), FAILS)
    return _long_enough("max_in_window", words, shown_limit, shown(worst), series, last)


def _within(expected: Mapping[str, Any], signals: Signals, _report: Report) -> Checked:
    first, last, level, tolerance = (_num(expected, key) for key in ("first", "until", "of", "tolerance"))
    name, span = text(expected, "series"), int(_num(expected, "span"))
    limit = f"at most {shown(level)} + {shown(tolerance)}"
    words = f"{span}-step EMA of {name}, steps {first:.0f} to {last:.0f}"
    points = signals.maybe(name)
    smooth = None if points is None else spikes.between(spikes.smoothed_points(points, max(1, span)), first, last)
    highest = None if smooth is None else spikes.highest(smooth)
    if highest is None:
        return Checked("within", words, limit, "", CANNOT, f"the new run has no {name} in these steps")
    bad = np.setdiff1d(signals.not_finite(name)[0], _skipped(signals))
    bad = bad[(bad >= first) & (bad <= last)]
    if highest[1] > level + tolerance or signals.end <= last or len(bad):
        measured = f"{shown(highest[1])} at step {highest[0]}"
        if signals.end <= last or len(bad):
            measured = f"not finite at step {min([*bad.tolist(), signals.end]):g}"
        return Checked("within", words, limit, measured, FAILS)
    return _long_enough("within", words, limit, f"{shown(highest[1])} at step {highest[0]}", signals.raw(name), last)


def _question(expected: Mapping[str, Any], signals: Signals, report: Report) -> Checked:
    code, was = outcome_of(text(expected, "code"), text(expected, "was"))
    words, limit = f"{code} does not find it again", f"not {was}, no fault"
    asked = next((candidate for candidate in report.walk.path if candidate.question.code == code), None)
    if asked is None:
        return _unasked(code, words, limit, signals)
    answer = asked.answer
    if answer.kind == CANNOT_TELL or (answer.kind == NOT_APPLICABLE and answer.missing):
        return Checked("question_passes", words, limit, "cannot tell", CANNOT, answer.message)
    if answer.kind == NOT_APPLICABLE:
        why = f"it does not apply to the new run: {answer.message}"
        return Checked("question_passes", words, limit, "not applicable", HOLDS, why)
    bad = answer.kind == FAULT or answer.outcome == was
    return Checked("question_passes", words, limit, answer.outcome, FAILS if bad else HOLDS)


def _unasked(code: str, words: str, limit: str, signals: Signals) -> Checked:
    """A question that check does not ask: only a replay or preflight finds its fault."""
    broke = signals.first_nonfinite is not None or bool(signals.about("failure"))
    if code.startswith(REPLAYED) and not broke:
        why = (
            "it does not apply to the new run: nothing is non-finite and nothing raised, so there is nothing to replay"
        )
        return Checked("question_passes", words, limit, "not applicable", HOLDS, why)
    why = "replay the new run to check it" if code.startswith(REPLAYED) else "it was not checked in the new run"
    return Checked("question_passes", words, limit, "cannot tell", CANNOT, why)


def _skipped(signals: Signals) -> Any:
    """The steps that a loss scaler skipped: non-finite values are normal there."""
    if not signals.has("skipped"):
        return np.empty(0, np.int64)
    skipped = signals.raw("skipped")
    return skipped.steps[skipped.values > 0]


def _taken(signals: Signals, series: Series, first: float, last: float) -> Floats:
    """The values between two steps, without skipped steps."""
    keep = (series.steps >= first) & (series.steps <= last) & ~np.isin(series.steps, _skipped(signals))
    return series.values[keep]


def _series(signals: Signals, name: str) -> Series | None:
    return signals.raw(name) if signals.has(name) else None


def _was(expected: Mapping[str, Any]) -> str:
    was = to_number(expected.get("was"))
    return "" if was is None else f" (was {shown(was)})"


def _clipped_at(signals: Signals, limit: float) -> bool:
    """Whether a run clips at this threshold or below, as recorded or else as declared."""
    recorded = signals.maybe("clip_threshold")
    clip = float(recorded.values[-1]) if recorded is not None else signals.declared("clip")
    return clip is not None and clip <= limit * (1 + 1e-6)


def _long_enough(kind: str, words: str, limit: str, measured: str, series: Series, last: float) -> Checked:
    """Pass, if the new run is long enough to decide."""
    end = int(series.steps[-1]) if len(series) else -1
    if end < last:
        return Checked(kind, words, limit, measured, CANNOT, f"the new run ends at step {end}, before step {last:.0f}")
    return Checked(kind, words, limit, measured, HOLDS)


@dataclass(frozen=True)
class _Kind:
    """The fields of one kind of expectation, and how to check it."""

    hold: Callable[[Mapping[str, Any], Signals, Report], Checked]
    numbers: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


KINDS = {
    "seed": _Kind(_check_seed, ("value",)),
    "finite": _Kind(_check_finite, ("until",), ("series",)),
    "gets_past": _Kind(_gets_past, ("step",)),
    "median_at_most": _Kind(_median_at_most, ("first", "last", "limit"), ("series",)),
    "loss_at_most": _Kind(_loss_at_most, ("step", "limit")),
    "max_in_window": _Kind(_max_in_window, ("first", "last", "limit"), ("series",)),
    "within": _Kind(_within, ("first", "until", "of", "tolerance", "span"), ("series",)),
    "question_passes": _Kind(_question, (), ("code", "was")),
}
