"""A3.4: does the loss exclude padding?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.intent import in_a_row, of_targets
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent


def find(run: Signals, limit: Limits) -> Finding:
    padding = run.maybe("targets/padding")
    if padding is None:
        of_targets(run, "targets/same", "the targets are not tokens aligned with the input")
        how = 'declare config={"pad_id": …}, or give run.watch the tokenizer'
        raise MissingSignal("targets/padding", "the padding token is unknown", how)
    if not _are_tokens(run, limit):
        raise NotApplicable("the targets are not tokens of the text, but tags or classes with their own ids")
    share = float(np.median(padding.values))
    measured = {"share": share, "largest": float(np.max(padding.values))}
    facts = f"At {percent(share)} of the supervised positions, padding predicts padding"
    first = in_a_row(padding.values > limit["share"], limit["samples"])
    if first is not None:
        return Finding("supervised", f"{facts} (limit {percent(limit['share'])}).", measured, padding.step_at(first))
    if measured["largest"] > 0:
        return Finding("a-little", f"{facts}, at most {percent(measured['largest'])}.", measured)
    return Finding("pass", "No padding is supervised.", measured)


def _are_tokens(run: Signals, limit: Limits) -> bool:
    series = [run.maybe(f"targets/{name}") for name in ("same", "next", "second")]
    return any(points is not None and float(np.median(points.values)) > limit["tokens"] for points in series)


QUESTION = Question(
    code="A3.4",
    name="no padding in the loss",
    asks="Does the loss exclude padding?",
    why="Padding that predicts padding is learned at once: the loss looks low, and the gradient of real tokens "
    "shrinks.",
    needs=("objective", "pad_id"),
    panel=1,
    thresholds=(
        Threshold(
            name="tokens",
            value=0.5,
            unit="of the supervised targets",
            meaning="how many must be tokens of the text",
            seed="",
            decision="a language model's targets are its own text",
        ),
        Threshold(
            name="share",
            value=0.02,
            unit="of the supervised positions",
            meaning="how many may be padding that predicts padding",
            seed="",
            decision="with masked padding there are none",
        ),
        Threshold(
            name="samples",
            value=2,
            unit="consecutive sampled steps",
            meaning="how many must show it",
            seed="",
            decision="one unusual batch does not count",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="padding is masked"),
        Outcome(
            name="supervised",
            answer=FAULT,
            meaning="the loss includes padding",
            fix="Set the labels of padding to -100, or pass ignore_index=pad_id to the loss.",
            explains=("C1", "C4", "S1", "A3.9"),
        ),
        Outcome(
            name="a-little",
            answer=NOTE,
            meaning="the loss includes a few padded positions",
            fix="No action is needed; to exclude them, set the labels of padding to -100.",
        ),
    ),
    find=find,
    always=True,
)
