"""A8.1: does attention ignore padding?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.intent import in_a_row
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent


def find(run: Signals, limit: Limits) -> Finding:
    if run.declared("pad_id") is None:
        raise NotApplicable("no pad_id is declared", "pad_id")
    share = run.maybe("padding_attention")
    if share is None:
        if not run.matching("dead_heads/*"):
            raise MissingSignal("padding_attention", "no attention over padded tokens was seen")
        raise NotApplicable("no attention over padded tokens was seen")
    measured = {"share": float(np.median(share.values))}
    first = in_a_row(share.values > limit["share"], limit["samples"])
    words = f"Real positions give {percent(measured['share'])} of their attention to padding"
    if first is not None:
        return Finding("seems-attended", f"{words} (limit {percent(limit['share'])}).", measured, share.step_at(first))
    return Finding("pass", f"{words}.", measured)


QUESTION = Question(
    code="A8.1",
    name="attention ignores padding",
    asks="Do real positions attend to padding?",
    why="Padding is not content. A model that attends to it gives different answers to the same text in different "
    "batches.",
    needs=("padding_attention", "pad_id"),
    panel=6,
    thresholds=(
        Threshold(
            name="share",
            value=0.01,
            unit="fraction of the attention",
            meaning="how much may fall on padding",
            seed="",
            decision="with a mask exactly none; a learned low weight is not a mask",
        ),
        Threshold(
            name="samples",
            value=3,
            unit="consecutive sampled steps",
            meaning="how many must show it",
            seed="",
            decision="three in a row are not an accident",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="attention ignores padding"),
        Outcome(
            name="seems-attended",
            answer=SUSPECT,
            meaning="attention to padding does not seem to be masked",
            fix="Pass a mask of the padded keys to attention (key_padding_mask, attention_mask).",
            experiment="Run `steadyrun preflight`: it changes the padding and checks whether other outputs move.",
            explains=("S6",),
        ),
    ),
    find=find,
    always=True,
)
