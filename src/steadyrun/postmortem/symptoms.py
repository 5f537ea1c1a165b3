"""Section 1: the symptoms in numbers, without interpretation. Unknown values say why."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from steadyrun.postmortem.case import SPAN, Case
from steadyrun.postmortem.measurements import Numbers, against
from steadyrun.signals.missing import HOW_TO_RECORD
from steadyrun.store.incident_files import text
from steadyrun.store.joint_incidents import path_in_run
from steadyrun.text import shown

_MOST = 8  # unusual tokens that are named


@dataclass(frozen=True)
class Symptom:
    """One line: the label, the value (or None), the value in words, and its source."""

    key: str
    label: str
    value: Any
    words: str
    source: str


def symptoms(case: Case, numbers: Numbers) -> tuple[Symptom, ...]:
    """All lines, in the order of the template."""
    return tuple(_lines(case, numbers))


def _lines(case: Case, numbers: Numbers) -> Iterator[Symptom]:
    at = case.moment
    yield Symptom("step", "first step", at.began, _began(case), _where(case))
    early = _absent(case, "loss", f"unknown: nothing was recorded before step {at.began}")
    yield _known("pre_loss", f"loss before ({SPAN}-step EMA)", numbers.level, f"series loss, to step {at.began}", early)
    yield _peak(case, numbers)
    yield _recovery(case, numbers)
    yield _gradient(case, numbers)
    unused = _absent(case, "lr/*", f"none at step {at.began}")
    yield _known("lr", "learning rate", numbers.rate, f"series lr/*, step {at.began}", unused)
    yield _dtype(numbers)
    yield _index(case, numbers)
    yield _hashes(numbers)
    if case.has_tokens:
        yield _tokens(case)
    for pattern, key, label in _FAMILIES:
        yield _family(case, numbers, pattern, key, label)


_FAMILIES = (
    ("activation/*", "activation", "most unusual activation"),
    ("update_ratio/*", "update", "most unusual update (relative to the block's norm)"),
)


def _began(case: Case) -> str:
    at = case.moment
    return f"{at.began}" if at.began == at.step else f"{at.began} (captured as step {at.step})"


def _where(case: Case) -> str:
    return "steadyrun check" if case.proofs.folder is None else f"{path_in_run(case.proofs.folder)}/incident.json"


def _known(key: str, label: str, value: float | None, source: str, missing: str) -> Symptom:
    return Symptom(key, label, value, shown(value) if value is not None else missing, source)


def _absent(case: Case, name: str, otherwise: str) -> str:
    """Why a value is missing: never recorded, or not at this step."""
    return otherwise if case.signals.matching(name) else f"not recorded: {HOW_TO_RECORD[name]}"


def _peak(case: Case, numbers: Numbers) -> Symptom:
    label, peak = "peak loss", numbers.peak
    if case.moment.non_finite:
        last = numbers.highest_loss_before
        before = "" if last is None else f"; highest finite loss before: {shown(last)}"
        there = numbers.loss_there
        bad = "not finite" if there is None or math.isfinite(there) else str(there)
        return Symptom("peak_loss", label, bad, f"{bad} (step {case.moment.step}){before}", "series loss")
    if peak is None:
        return _known("peak_loss", label, None, "series loss", _absent(case, "loss", "no finite loss at these steps"))
    return Symptom("peak_loss", label, peak[1], f"{shown(peak[1])} (step {peak[0]})", "series loss")


def _recovery(case: Case, numbers: Numbers) -> Symptom:
    label, recovery = f"recovery loss ({SPAN} steps after the peak)", numbers.recovery
    if case.moment.non_finite and (recovery is None or not math.isfinite(recovery[1])):
        value = "nan" if recovery is not None else "did not recover"
        until = f" up to step {recovery[0]}" if recovery is not None else ", and the recording ends there"
        return Symptom("recovery_loss", label, value, f"did not recover: NaN{until}", "series loss")
    if recovery is None:
        return Symptom("recovery_loss", label, None, "unknown: no loss was recorded after the peak", "series loss")
    return Symptom(
        "recovery_loss", label, recovery[1], f"{shown(recovery[1])} (step {recovery[0]}){_back(case)}", "series loss"
    )


def _back(case: Case) -> str:
    spike = case.moment.spike
    if spike is None:
        return ""
    if spike.end is None:
        return "; not back to normal before the recording ends"
    end = int(case.signals.points("loss").steps[spike.end])
    return f"; back to normal at step {end}"


def _gradient(case: Case, numbers: Numbers) -> Symptom:
    label, largest = "gradient norm before clipping", numbers.gradient
    if largest is None:
        return _known(
            "grad_norm", label, None, "series grad_norm", _absent(case, "grad_norm", "not recorded at these steps")
        )
    level = numbers.gradient_level
    usual = f", normally {shown(level)}" if level is not None else ""
    clip = f", clip threshold {shown(numbers.clip)}" if numbers.clip else ""
    return Symptom(
        "grad_norm", label, largest[1], f"{shown(largest[1])} (step {largest[0]}{usual}{clip})", "series grad_norm"
    )


def _dtype(numbers: Numbers) -> Symptom:
    words = numbers.dtype or 'unknown: declare config={"dtype": …} or call run.watch(model)'
    return Symptom("dtype", "dtype", numbers.dtype or None, words, "manifest")


def _index(case: Case, numbers: Numbers) -> Symptom:
    index = numbers.recorded("batch_index", case.moment.step)
    words = f"{index:.0f}" if index is not None else "not recorded: give run.step its batch"
    return Symptom("batch_index", "batch index", index, words, "series batch_index")


def _hashes(numbers: Numbers) -> Symptom:
    equal = numbers.repeats
    if equal is None:
        words, value = "not recorded: give run.step its batch", None
    else:
        words = f"same batch as step {', '.join(map(str, equal))}" if equal else "differs from the batches around it"
        value = bool(equal)
    return Symptom("batch_repeats", "batch hash", value, words, "series batch_hash")


def _tokens(case: Case) -> Symptom:
    tokens = case.proofs.unusual
    named = [{key: token.get(key) for key in ("text", "in_batch", "before", "expected")} for token in tokens[:_MOST]]
    if tokens:
        words = ", ".join(f"{text(token, 'text')!r} {token.get('in_batch')} times" for token in named)
        more = f" and {len(tokens) - _MOST} more" if len(tokens) > _MOST else ""
        words = f"{words}{more}"
    elif "unusual_tokens" in case.proofs.batch:
        words = "none"
    else:
        words = "unknown: give run.watch the tokenizer and run.step the batch"
    value = named if case.proofs.batch.get("unusual_tokens") is not None else None
    return Symptom("unusual_tokens", "unusual tokens in the batch", value, words, "batch.json")


def _family(case: Case, numbers: Numbers, pattern: str, key: str, label: str) -> Symptom:
    outlier = numbers.largest(pattern)
    if outlier is None:
        how = "not measured at this step: `steadyrun replay` measures every step of the window"
        if case.replayed is not None:
            how = "not measured at this step, neither by the run nor by its replay"
        return Symptom(key, label, None, how, f"series {pattern}")
    name, now, usual, replayed = outlier
    words = f"{name}: {against(now, usual)}"
    source = f"series {pattern}{' of the replay' if replayed else ''}"
    return Symptom(key, label, {"name": name, "value": now, "before": usual}, words, source)
