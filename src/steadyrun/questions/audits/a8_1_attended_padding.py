"""A8.1: does attention leave padding alone?"""

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
    words = f"real positions give {percent(measured['share'])} of their attention to padding"
    if first is not None:
        return Finding("seems-attended", f"{words} (limit {percent(limit['share'])}).", measured, share.step_at(first))
    return Finding("pass", f"{words}.", measured)


QUESTION = Question(
    code="A8.1",
    name="attention leaves padding alone",
    asks="Do real positions attend to padding?",
    why="Padding is not content. A model that looks at it gives other answers to the same text in another batch.",
    needs=("padding_attention", "pad_id"),
    panel=6,
    thresholds=(
        Threshold(
            name="share",
            value=0.01,
            unit="of the attention",
            meaning="how much may fall on padding",
            seed="",
            decision="a mask leaves exactly none; a learned aversion is not a mask",
        ),
        Threshold(
            name="samples",
            value=3,
            unit="sampled steps in a row",
            meaning="how many must show it",
            seed="",
            decision="three are no accident",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="padding is masked"),
        Outcome(
            name="seems-attended",
            answer=SUSPECT,
            meaning="attention seems not to be masked: real positions look at padding",
            fix="Give attention a mask of the padded keys (key_padding_mask, attention_mask).",
            experiment="Run steadyrun preflight: it disturbs the padding and sees whether other outputs move.",
            explains=("S6",),
        ),
    ),
    find=find,
    always=True,
)
