"""A3.4: is padding left out of the loss?"""

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
        of_targets(run, "targets/same", "the targets are no tokens beside those of the input")
        how = 'declare config={"pad_id": …}, or give run.watch the tokenizer'
        raise MissingSignal("targets/padding", "whether padding is supervised is not known", how)
    if not _are_tokens(run, limit):
        raise NotApplicable("the targets are no tokens of the text: tags and classes have numbers of their own")
    share = float(np.median(padding.values))
    measured = {"share": share, "largest": float(np.max(padding.values))}
    facts = f"{percent(share)} of the supervised positions ask padding to predict padding"
    first = in_a_row(padding.values > limit["share"], limit["samples"])
    if first is not None:
        return Finding("supervised", f"{facts} (limit {percent(limit['share'])}).", measured, padding.step_at(first))
    if measured["largest"] > 0:
        return Finding("a-little", f"{facts}, at most {percent(measured['largest'])}.", measured)
    return Finding("pass", "no padding is supervised.", measured)


def _are_tokens(run: Signals, limit: Limits) -> bool:
    series = [run.maybe(f"targets/{name}") for name in ("same", "next", "second")]
    return any(points is not None and float(np.median(points.values)) > limit["tokens"] for points in series)


QUESTION = Question(
    code="A3.4",
    name="padding is not supervised",
    asks="Is padding left out of the loss?",
    why="Padding that predicts padding is learned at once: the loss looks low, and the gradient of real tokens "
    "shrinks.",
    needs=("objective", "pad_id"),
    panel=1,
    thresholds=(
        Threshold(
            name="tokens",
            value=0.5,
            unit="of supervised targets",
            meaning="must be tokens of the text",
            seed="",
            decision="a text predicts itself",
        ),
        Threshold(
            name="share",
            value=0.02,
            unit="of supervised positions",
            meaning="more than this is no leftover",
            seed="",
            decision="masked padding gives none",
        ),
        Threshold(
            name="samples",
            value=2,
            unit="sampled steps in a row",
            meaning="how many must show it",
            seed="",
            decision="not one strange batch",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="padding is masked"),
        Outcome(
            name="supervised",
            answer=FAULT,
            meaning="the loss counts padding",
            fix="Set the labels of padding to -100 (or ignore_index=pad_id in the loss).",
            explains=("C1", "C4", "S1", "A3.9"),
        ),
        Outcome(name="a-little", answer=NOTE, meaning="a few padded positions are supervised"),
    ),
    find=find,
    always=True,
)
