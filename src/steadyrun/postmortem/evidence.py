"""Observations for section 3: each panel and each proof in numbers, once, without interpretation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from steadyrun.postmortem.case import SPAN, WINDOW, Case
from steadyrun.postmortem.measurements import RECENT, Numbers, against
from steadyrun.questions.form import FAULT, NOTE
from steadyrun.report import phrases
from steadyrun.store.incident_files import entries, part, text, to_number, to_step, token_count
from steadyrun.text import counted, percent, shown

REPLAY, EXPERIMENT, PANEL, WALK, BATCH, RECORD = "replay", "experiment", "panel", "walk", "batch", "record"
TRIAL = "trial"
PANELS = {
    1: "loss",
    2: "learning rate",
    3: "gradient norm before clipping",
    4: "activations",
    5: "weight matrices",
    6: "dead units",
    7: "loss by class and by token",
}
_SHOWN = 4


@dataclass(frozen=True)
class Observation:
    """One observation: its source, its text with numbers, and the number that hypotheses weigh."""

    key: str
    source: str
    panel: int | None
    text: str
    value: float | None = None


Observations = Mapping[str, Observation]


def observe(case: Case, numbers: Numbers) -> Observations:
    """All observations by key, the strongest kinds of evidence first."""
    proofs = [*_experiments(case), *_replay(case), *_trial(case)]
    observations = [*proofs, *_panels(case, numbers), *_batch(case, numbers), *_walk(case)]
    return {observation.key: observation for observation in [*observations, *_unseen(case, observations)]}


def _unseen(case: Case, observations: list[Observation]) -> Iterator[Observation]:
    """The panels without data at the incident."""
    shown_panels = {observation.panel for observation in observations if observation.source in {PANEL, BATCH}}
    panels = PANELS if case.has_tokens else PANELS | {7: "loss by class"}
    absent = [f"{number} ({name})" for number, name in panels.items() if number not in shown_panels]
    if absent:
        yield Observation("unseen", RECORD, None, f"nothing at these steps for panel {', '.join(absent)}")


def _experiments(case: Case) -> Iterator[Observation]:
    record = case.proofs.experiments
    if record is None:
        return
    verdict = f"verdict {record.verdict}: {record.why}" if record.why else f"verdict {record.verdict}"
    interacts = record.interaction and record.interaction != record.why
    yield Observation(
        "verdict", EXPERIMENT, None, f"{verdict}{f'. Interaction: {record.interaction}' if interacts else ''}"
    )
    if record.isolation:
        yield Observation("isolation", EXPERIMENT, None, f"isolated: {record.isolation}")
    for index, row in enumerate(record.rows):
        gone = {True: "the incident is gone", False: "the incident is still there", None: "not tested"}[row.gone]
        peak = (
            ""
            if row.peak_loss is None or row.gone is None
            else f" (peak loss {shown(row.peak_loss)}{_was(record.peak_loss)})"
        )
        note = f"; {row.note.removeprefix('not tested: ')}" if row.note else ""
        value = None if row.gone is None else float(row.gone)
        yield Observation(f"experiment:{index}", EXPERIMENT, None, f"with {row.words}: {gone}{peak}{note}", value)


def _was(value: float | None) -> str:
    return "" if value is None else f", without the change {shown(value)}"


def _replay(case: Case) -> Iterator[Observation]:
    replay, proof = case.proofs.replay, part(case.proofs.replay, "proof")
    if case.proofs.proof:
        count, largest = proof.get("compared"), to_number(proof.get("largest"))
        differ = "" if not largest else f", largest relative difference {shown(largest)}"
        yield Observation("proof", REPLAY, None, f"{case.proofs.proof}, {count} losses compared{differ}")
        for index, difference in enumerate(entries(proof, "differences")[:_SHOWN]):
            what = f"{text(difference, 'what')}: {text(difference, 'message')}"
            yield Observation(f"differs:{index}", REPLAY, None, f"difference, {what}")
    yield from _hardware(part(replay, "hardware"))
    if said := text(replay, "raised"):
        yield Observation("raised", REPLAY, None, f"step {replay.get('first_bad')} raises again: {said}")
    if culprit := text(case.proofs.culprit, "message"):
        where = text(case.proofs.culprit, "where")
        yield Observation("culprit", REPLAY, None, f"{culprit}{f' ({where})' if where else ''}")
    if outcome := text(part(replay, "precision"), "outcome"):
        said = text(part(replay, "precision"), "message")
        yield Observation("precision", REPLAY, 3, f"{outcome}: {said}")
    yield from _violent(part(replay, "violent"))


def _hardware(hardware: Mapping[str, Any]) -> Iterator[Observation]:
    if verdict := text(hardware, "verdict"):
        said = f"hardware or software: {verdict}; {text(hardware, 'why')}. Next: {text(hardware, 'next')}"
        yield Observation("hardware", REPLAY, None, said)


def _violent(change: Mapping[str, Any]) -> Iterator[Observation]:
    step, ratio, typical = to_step(change.get("step")), to_number(change.get("ratio")), to_number(change.get("typical"))
    if step is None or ratio is None:
        return
    moved = f"changes by {percent(ratio)} of its norm" if math.isfinite(ratio) else "becomes non-finite"
    usual = "" if typical is None or not math.isfinite(typical) else f", normally {percent(typical)}"
    said = f"first violent update at step {step}: {text(change, 'parameter')} {moved}{usual}"
    yield Observation("violent", REPLAY, 5, said, ratio)


def _trial(case: Case) -> Iterator[Observation]:
    if case.trial is not None:
        yield Observation(TRIAL, TRIAL, None, case.trial.said)


def _panels(case: Case, numbers: Numbers) -> Iterator[Observation]:
    yield from _loss(case, numbers)
    yield from _rate(case, numbers)
    if numbers.gradient is not None:
        step, norm = numbers.gradient
        level = numbers.gradient_level
        said = f"{shown(norm)} at step {step}" if level is None else f"at step {step}: {against(norm, level)}"
        yield Observation("gradient", PANEL, 3, said, numbers.gradient_times)
    for key, pattern, panel, what in _FAMILIES:
        if (outlier := numbers.largest(pattern)) is not None:
            name, now, usual, replayed = outlier
            origin = ", measured by the replay" if replayed else ""
            source = PANEL if panel is not None else "updates"
            yield Observation(key, source, panel, f"{what} {name}: {against(now, usual)}{origin}", now / usual)


_FAMILIES = (
    ("activation", "activation/*", 4, "output of"),
    ("class", "class_loss/*", 7, "loss of class"),
    ("update", "update_ratio/*", None, "update of"),
)


def _rate(case: Case, numbers: Numbers) -> Iterator[Observation]:
    rise = numbers.rise
    if rise is None:
        return
    meant = "" if rise.declared is None else f", declared {shown(rise.declared)}"
    there = "" if numbers.rate is None else f"{shown(numbers.rate)} at step {case.moment.began}; "
    if rise.after > rise.before:
        moved = f"from {shown(rise.before)} to {shown(rise.after)} at step {rise.step}"
        said = f"{there}its largest rise near the incident is {moved} ({percent(rise.share)} of its peak{meant})"
    else:
        said = f"{there}it does not rise near the incident"
    yield Observation("rate", PANEL, 2, said, rise.share)


def _loss(case: Case, numbers: Numbers) -> Iterator[Observation]:
    at, level = case.moment, numbers.level
    usual = "" if level is None else f", normally {shown(level)} ({SPAN}-step EMA before)"
    if at.non_finite:
        bad = case.signals.not_finite("loss")[0] if case.signals.has("loss") else np.empty(0, np.int64)
        later = int(np.sum(bad >= at.began))
        total = int(np.sum(case.signals.raw("loss").steps >= at.began)) if case.signals.has("loss") else 0
        said = f"{later:,} of {total:,} losses from step {at.began} are not finite{usual}"
        yield Observation("not-finite", PANEL, 1, said, later / total if total else None)
    elif numbers.peak is not None:
        step, value = numbers.peak
        spike = at.spike
        high = (
            "" if spike is None else f", {shown(spike.sigmas)} standard deviations above the mean of the steps before"
        )
        back = (
            ""
            if spike is None
            else "; it does not recover"
            if spike.end is None
            else f"; back to normal after {counted(spike.length or 0, 'step')}"
        )
        length = None if spike is None or spike.length is None else float(spike.length)
        yield Observation("loss", PANEL, 1, f"{shown(value)} at step {step}{high}{usual}{back}", length)


def _batch(case: Case, numbers: Numbers) -> Iterator[Observation]:
    unusual = case.proofs.unusual
    late = "" if case.batch_is_of_the_beginning else f" (batch of step {case.moment.step}, after the incident began)"
    if unusual:
        said = ", ".join(_token(token) for token in unusual[:_SHOWN])
        yield Observation("unusual", BATCH, 7, f"unusual tokens{late}: {said}", float(len(unusual)))
    elif "unusual_tokens" in case.proofs.batch:
        yield Observation("unusual", BATCH, 7, f"no token of the batch is unusually rare or frequent{late}", 0.0)
    losses = np.array(case.proofs.token_losses)
    finite = losses[np.isfinite(losses)]
    if len(finite):
        median, high, top = (float(np.percentile(finite, level)) + 0.0 for level in (50, 99, 100))
        spread = f"median {shown(median)}, 99th percentile {shown(high)}, highest {shown(top)}"
        said = f"losses of {counted(len(losses), 'token')}: {spread}"
        lost = f"; {len(losses) - len(finite)} are not finite" if len(finite) < len(losses) else ""
        yield Observation("tokens", BATCH, 7, f"{said}{lost}", median)
    if numbers.repeats is not None:
        said = (
            f"the batch is identical to that of step {', '.join(map(str, numbers.repeats))}"
            if numbers.repeats
            else f"the batch differs from the {RECENT} before it and from the next one, as far as hashes were recorded"
        )
        yield Observation("hash", BATCH, None, f"{said} (step {case.moment.step})", float(bool(numbers.repeats)))
    yield from _counter(case)
    if numbers.dtype:
        yield Observation("dtype", "manifest", None, f"the run computes in {numbers.dtype}")


def _token(token: Mapping[str, Any]) -> str:
    known = {"text": text(token, "text"), "in_batch": token.get("in_batch") or 0, "before": token.get("before") or 0}
    return token_count({**token, **known})


def _counter(case: Case) -> Iterator[Observation]:
    for name in case.signals.matching("step_count/*"):
        counts = case.signals.maybe(name)
        if counts is None or len(counts) < 2:
            continue
        fell = np.flatnonzero(np.diff(counts.values) < 0)
        near = [index for index in fell.tolist() if abs(counts.step_at(index + 1) - case.moment.began) <= WINDOW]
        if near:
            old, new = counts.values[near[0]], counts.values[near[0] + 1]
            said = f"the optimizer's step count falls from {old:g} to {new:g} by step {counts.step_at(near[0] + 1)}"
        else:
            said = "the optimizer's step count does not fall near the incident"
        yield Observation("counter", "optimizer", None, said, float(bool(near)))
        return


def _walk(case: Case) -> Iterator[Observation]:
    for asked in case.report.walk.path:
        if asked.answer.kind in {FAULT, NOTE}:
            said = f"{phrases.title(asked)}, {asked.answer.kind}: {asked.answer.message}"
            yield Observation(f"walk:{asked.question.code}", WALK, asked.panel, said)
