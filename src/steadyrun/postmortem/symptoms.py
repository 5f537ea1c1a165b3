"""Section 1: what was observed, in numbers and without a theory. Every line is there; what is not known says why."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from steadyrun.postmortem.case import SPAN, WINDOW, Case
from steadyrun.postmortem.measurements import Numbers, against
from steadyrun.signals.missing import HOW_TO_RECORD
from steadyrun.store.incident_files import text
from steadyrun.text import shown

_MOST = 8  # unusual tokens that are named


@dataclass(frozen=True)
class Symptom:
    """One line: what it is, the number (or None), the same in words, and where it was taken from."""

    key: str
    label: str
    value: Any
    words: str
    source: str


def symptoms(case: Case, numbers: Numbers) -> tuple[Symptom, ...]:
    """All lines of the template, in its order."""
    return tuple(_lines(case, numbers))


def _lines(case: Case, numbers: Numbers) -> Iterator[Symptom]:
    at = case.moment
    yield Symptom("step", "step where it began", at.began, _began(case), _where(case))
    early = _absent(case, "loss", f"none: nothing was recorded before step {at.began}")
    yield _known("pre_loss", f"loss before ({SPAN}-step EMA)", numbers.level, f"series loss, to step {at.began}", early)
    yield _peak(case, numbers)
    yield _recovery(case, numbers)
    yield _gradient(case, numbers)
    unused = _absent(case, "lr/*", f"none was used at step {at.began}")
    yield _known("lr", "learning rate there", numbers.rate, f"series lr/*, step {at.began}", unused)
    yield _dtype(numbers)
    yield _index(case, numbers)
    yield _hashes(numbers)
    if case.has_tokens:
        yield _tokens(case)
    for pattern, key, label in _FAMILIES:
        yield _family(case, numbers, pattern, key, label)


_FAMILIES = (
    ("activation/*", "activation", "activation that stands out most"),
    ("update_ratio/*", "update", "update that stands out most (of the block's norm)"),
)


def _began(case: Case) -> str:
    at = case.moment
    return f"{at.began}" if at.began == at.step else f"{at.began} (captured as step {at.step})"


def _where(case: Case) -> str:
    return "the walk" if case.proofs.folder is None else f"incidents/{case.proofs.folder.name}/incident.json"


def _known(key: str, label: str, value: float | None, source: str, missing: str) -> Symptom:
    return Symptom(key, label, value, shown(value) if value is not None else missing, source)


def _absent(case: Case, name: str, otherwise: str) -> str:
    """Why a number is not there: never recorded, or not at this place."""
    return otherwise if case.signals.matching(name) else f"not recorded: {HOW_TO_RECORD[name]}"


def _peak(case: Case, numbers: Numbers) -> Symptom:
    label, peak = "peak loss", numbers.peak
    if case.moment.non_finite:
        last = numbers.highest_loss_before
        before = "" if last is None else f"; the highest finite loss before it is {shown(last)}"
        there = numbers.loss_there
        bad = "not finite" if there is None or math.isfinite(there) else str(there)
        return Symptom("peak_loss", label, bad, f"{bad} (step {case.moment.step}){before}", "series loss")
    if peak is None:
        return _known("peak_loss", label, None, "series loss", _absent(case, "loss", "no finite loss there"))
    return Symptom("peak_loss", label, peak[1], f"{shown(peak[1])} (step {peak[0]})", "series loss")


def _recovery(case: Case, numbers: Numbers) -> Symptom:
    label, recovery = f"recovery loss ({SPAN} steps after the peak)", numbers.recovery
    if case.moment.non_finite and (recovery is None or not math.isfinite(recovery[1])):
        value = "nan" if recovery is not None else "did not recover"
        until = f" up to step {recovery[0]}" if recovery is not None else ", the record ends there"
        return Symptom("recovery_loss", label, value, f"did not recover: NaN{until}", "series loss")
    if recovery is None:
        return Symptom("recovery_loss", label, None, "not known: no loss was recorded after the peak", "series loss")
    return Symptom(
        "recovery_loss", label, recovery[1], f"{shown(recovery[1])} (step {recovery[0]}){_back(case)}", "series loss"
    )


def _back(case: Case) -> str:
    spike = case.moment.spike
    if spike is None:
        return ""
    if spike.end is None:
        return "; did not recover within the record"
    end = int(case.signals.points("loss").steps[spike.end])
    return f"; back within half a deviation of its level before at step {end}"


def _gradient(case: Case, numbers: Numbers) -> Symptom:
    label, largest = "gradient norm before clipping there", numbers.gradient
    if largest is None:
        return _known("grad_norm", label, None, "series grad_norm", _absent(case, "grad_norm", "not at these steps"))
    level = numbers.gradient_level
    usual = f", mean of the {WINDOW} steps before {shown(level)}" if level is not None else ""
    clip = f", clip threshold {shown(numbers.clip)}" if numbers.clip else ""
    return Symptom(
        "grad_norm", label, largest[1], f"{shown(largest[1])} (step {largest[0]}{usual}{clip})", "series grad_norm"
    )


def _dtype(numbers: Numbers) -> Symptom:
    words = numbers.dtype or 'not known: declare config={"dtype": …} or watch the model'
    return Symptom("dtype", "dtype regime", numbers.dtype or None, words, "manifest")


def _index(case: Case, numbers: Numbers) -> Symptom:
    index = numbers.recorded("batch_index", case.moment.step)
    words = f"{index:.0f}" if index is not None else "not recorded: give run.step its batch"
    return Symptom("batch_index", "batch index", index, words, "series batch_index")


def _hashes(numbers: Numbers) -> Symptom:
    equal = numbers.repeats
    if equal is None:
        words, value = "not recorded: give run.step its batch", None
    else:
        words = f"equal to that of step {', '.join(map(str, equal))}" if equal else "differs from its neighbours'"
        value = bool(equal)
    return Symptom("batch_repeats", "batch hash", value, words, "series batch_hash")


def _tokens(case: Case) -> Symptom:
    tokens = case.proofs.unusual
    named = [{key: token.get(key) for key in ("text", "in_batch", "before", "expected")} for token in tokens[:_MOST]]
    if tokens:
        words = ", ".join(f"{text(token, 'text')!r} {token.get('in_batch')}x" for token in named)
        more = f" and {len(tokens) - _MOST} more" if len(tokens) > _MOST else ""
        words = f"{words}{more}"
    elif "unusual_tokens" in case.proofs.batch:
        words = "none flagged"
    else:
        words = "not looked at: give run.watch the tokenizer and run.step the batch"
    value = named if case.proofs.batch.get("unusual_tokens") is not None else None
    return Symptom("unusual_tokens", "unusual tokens in that batch", value, words, "batch.json")


def _family(case: Case, numbers: Numbers, pattern: str, key: str, label: str) -> Symptom:
    outlier = numbers.largest(pattern)
    if outlier is None:
        how = "not measured at that step: `steadyrun replay` measures every step of the window"
        if case.replayed is not None:
            how = "not measured: neither the run nor its replay has a part of the model to measure at that step"
        return Symptom(key, label, None, how, f"series {pattern}")
    name, now, usual, replayed = outlier
    words = f"{name}: {against(now, usual)}"
    source = f"series {pattern}{' of the replay' if replayed else ''}"
    return Symptom(key, label, {"name": name, "value": now, "before": usual}, words, source)
