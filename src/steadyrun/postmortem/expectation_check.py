"""One expectation of a post-mortem against one run, by its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from steadyrun.postmortem.expectations import seed_of
from steadyrun.questions.form import CANNOT_TELL, FAULT, NOT_APPLICABLE
from steadyrun.records import Series
from steadyrun.report.kept_answers import REPLAYED
from steadyrun.report.report import Report
from steadyrun.signals import around_moment
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.smoothing import Floats
from steadyrun.store.incident_files import text, to_number
from steadyrun.text import shown

HOLDS, FAILS, CANNOT, SKIPPED = "pass", "fail", "cannot-tell", "skipped"


@dataclass(frozen=True)
class Checked:
    """One expectation and what the new run shows."""

    kind: str
    expectation: str
    limit: str
    measured: str
    verdict: str
    why: str = ""


def hold(expected: Mapping[str, Any], signals: Signals, report: Report) -> Checked:
    """One expectation against a run."""
    kind = text(expected, "kind")
    return KINDS[kind].hold(expected, signals, report)


def _num(expected: Mapping[str, Any], name: str) -> float:
    value = to_number(expected.get(name))
    assert value is not None  # checked when it was read
    return value


def _seed(expected: Mapping[str, Any], signals: Signals, _report: Report) -> Checked:
    wanted, mine = _num(expected, "value"), seed_of(signals.config, signals.inferred)
    limit = f"{wanted:g}"
    if mine is None:
        return Checked("seed", "the same seed", limit, "none", CANNOT, "the new run declares no seed")
    return Checked("seed", "the same seed", limit, f"{mine:g}", HOLDS if mine == wanted else FAILS)


def _finite(expected: Mapping[str, Any], signals: Signals, _report: Report) -> Checked:
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
    words = f"gets past step {step} with a finite loss"
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
    loss = None if series is None else around_moment.value_at(series, step)
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
    smooth = (
        None
        if points is None
        else around_moment.between(around_moment.smoothed_points(points, max(1, span)), first, last)
    )
    highest = None if smooth is None else around_moment.highest(smooth)
    if highest is None:
        return Checked("within", words, limit, "", CANNOT, f"the new run has no {name} in these steps")
    if highest[1] > level + tolerance or signals.end <= last:
        measured = (
            f"{shown(highest[1])} at step {highest[0]}"
            if signals.end > last
            else f"not finite from step {signals.end:g} on"
        )
        return Checked("within", words, limit, measured, FAILS)
    return _long_enough("within", words, limit, f"{shown(highest[1])} at step {highest[0]}", signals.raw(name), last)


def _question(expected: Mapping[str, Any], signals: Signals, report: Report) -> Checked:
    code, was = text(expected, "code"), text(expected, "was")
    words, limit = f"{code} does not find it again", f"not {was}, no fault"
    asked = next((candidate for candidate in report.walk.path if candidate.question.code == code), None)
    if asked is None:
        return _unasked(code, words, limit, signals)
    answer = asked.answer
    if answer.kind == CANNOT_TELL or (answer.kind == NOT_APPLICABLE and answer.missing):
        return Checked("question_passes", words, limit, "cannot tell", CANNOT, answer.message)
    if answer.kind == NOT_APPLICABLE:
        why = f"it cannot arise in the new run: {answer.message}"
        return Checked("question_passes", words, limit, "does not arise", HOLDS, why)
    bad = answer.kind == FAULT or answer.outcome == was
    return Checked("question_passes", words, limit, answer.outcome, FAILS if bad else HOLDS)


def _unasked(code: str, words: str, limit: str, signals: Signals) -> Checked:
    """A question that the walk does not ask: only a replay finds its fault, or preflight before the run."""
    broke = signals.first_nonfinite is not None or bool(signals.about("failure"))
    if code.startswith(REPLAYED) and not broke:
        why = "it cannot arise in the new run: nothing is non-finite and nothing raised, so there is nothing to replay"
        return Checked("question_passes", words, limit, "does not arise", HOLDS, why)
    why = "replay the new run to know" if code.startswith(REPLAYED) else "it was not asked of the new run"
    return Checked("question_passes", words, limit, "cannot tell", CANNOT, why)


def _skipped(signals: Signals) -> Any:
    """The steps that a loss scaler skipped: what is not finite there is ordinary."""
    if not signals.has("skipped"):
        return np.empty(0, np.int64)
    skipped = signals.raw("skipped")
    return skipped.steps[skipped.values > 0]


def _taken(signals: Signals, series: Series, first: float, last: float) -> Floats:
    """The values between two steps, those of skipped steps left out."""
    keep = (series.steps >= first) & (series.steps <= last) & ~np.isin(series.steps, _skipped(signals))
    return series.values[keep]


def _series(signals: Signals, name: str) -> Series | None:
    return signals.raw(name) if signals.has(name) else None


def _was(expected: Mapping[str, Any]) -> str:
    was = to_number(expected.get("was"))
    return "" if was is None else f" (was {shown(was)})"


def _clipped_at(signals: Signals, limit: float) -> bool:
    """Whether a run clips at this threshold or below: as recorded, or else as declared."""
    recorded = signals.maybe("clip_threshold")
    clip = float(recorded.values[-1]) if recorded is not None else signals.declared("clip")
    return clip is not None and clip <= limit * (1 + 1e-6)


def _long_enough(kind: str, words: str, limit: str, measured: str, series: Series, last: float) -> Checked:
    """It holds, if the new run went far enough to say so."""
    end = int(series.steps[-1]) if len(series) else -1
    if end < last:
        return Checked(kind, words, limit, measured, CANNOT, f"the new run ends at step {end}, before step {last:.0f}")
    return Checked(kind, words, limit, measured, HOLDS)


@dataclass(frozen=True)
class _Kind:
    """What an expectation of one kind must hold, and how it is checked."""

    hold: Callable[[Mapping[str, Any], Signals, Report], Checked]
    numbers: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


KINDS = {
    "seed": _Kind(_seed, ("value",)),
    "finite": _Kind(_finite, ("until",), ("series",)),
    "gets_past": _Kind(_gets_past, ("step",)),
    "median_at_most": _Kind(_median_at_most, ("first", "last", "limit"), ("series",)),
    "loss_at_most": _Kind(_loss_at_most, ("step", "limit")),
    "max_in_window": _Kind(_max_in_window, ("first", "last", "limit"), ("series",)),
    "within": _Kind(_within, ("first", "until", "of", "tolerance", "span"), ("series",)),
    "question_passes": _Kind(_question, (), ("code", "was")),
}
