"""Which answers name the cause of a bug of the second fleet: one row per family of causes.

An entry is a question's code, or `code:outcome`, as the pages in docs/questions describe them. A headline that only
says what happened does not name a cause. A family without entries has no question that names it yet: new codes go in
here, and nowhere else. The causes that a replay names (E1.1) have no page; those of the first fleet are taken over.
"""

from __future__ import annotations

ANSWERS: dict[str, tuple[str, ...]] = {
    "rate too high": ("C4.1:diverging", "P6.5:too-high", "C7.2:rate-too-high"),
    "rate too low": ("C4.1:too-slow", "P6.5:too-low", "C7.1:rate-too-low"),
    "decay out of range": ("D4.3:shrinking", "C7.3:too-strong"),
    "dropout out of range": ("C7.5:too-high",),
    "smoothing out of range": ("P3.4:hides-learning", "C7.6:hides-learning"),
    "clip out of range": ("C3.1:always-clipping", "C7.1:clip-too-tight"),
    "optimizer setting out of range": ("C7.4:epsilon", "C7.4:betas", "C7.2:momentum-too-long"),
    "temperature out of range": (),
    "start too wide": ("C5.1:too-wide", "C5.1:perhaps-too-wide", "P3.3:weights", "P6.4:saturated", "S6.3:no-slope"),
    "start without differences": ("C5.1:off-centre", "C5.1:perhaps-too-narrow", "C5.1:alike"),
    "same data again": ("D2.3:duplicate-batch", "V1.6:few-of-many", "V1.6:stuck", "V1.6:by-heart"),
    "too few examples": ("C4.2:overfitting", "V1.6:by-heart", "V1.6:few-of-many"),
    "order of the data": ("A3.6:sorted", "P1.6:sorted"),
    "labels unrelated": (
        *("S1.4:unrelated", "S1.4:by-heart-alone", "P1.7:labels-change", "A5.7:repeated", "A5.7:reassigned"),
        *("A5.7:repeated-unrelated", "A5.7:reassigned-unrelated"),
    ),
    "labels partly wrong": ("A5.7:reassigned", "C4.2:noisier", "A5.6:unlike"),
    "one bad batch": ("A5.4:degenerate",),
    "prepared differently": ("A5.6:differs", "A5.6:other-scale", "A5.6:unlike"),
    "numbered differently": ("A5.6:unlike",),
    "validation in training": ("C4.2:leak", "P1.8:leak"),
    "target is visible": (
        *("S1.1:sees-the-answer", "P3.6:sees-target", "A3.3:not-shifted", "P1.3:not-shifted", "A5.9:same-twice"),
    ),
    "training unlike evaluation": (),
    "part outside the optimizer": ("A4.1:left-out", "A4.1:stale", "P4.1:left-out", "P4.1:stale"),
    "optimizer of another model": (
        *("A4.1:left-out", "A4.1:stale", "P4.1:left-out", "P4.1:stale"),
        *("A4.3:nothing-reached", "P4.6:empty-step"),
    ),
    "gradient cut off": ("A4.3:cut-off", "P4.5:cut-off"),
    "weights not registered": ("A4.2:unregistered", "P4.4:unregistered"),
    "input not used": ("P3.5:inputs-ignored", "A4.3:table-unused"),
    "frozen at random": ("A4.4:frozen-at-random", "A4.4:perhaps-at-random"),
    "micro-batches lost": ("P5.3:only-last", "A1.2:erased", "P5.1:erased", "A1.4:erased", "A1.4:perhaps-erased"),
    "micro-batches not divided": ("C6.3:not-divided", "P5.3:not-divided"),
    "padding is learned": (
        *(
            "A3.4:supervised",
            "P1.4:padding-counts",
            "P3.8:attended",
            "A8.1:seems-attended",
            "A3.9:counted",
            "A3.9:zeros-counted",
        ),
    ),
    "mask inverted": (
        *("A3.4:supervised", "P1.4:padding-counts", "P3.8:attended", "A8.1:seems-attended"),
        *("C1.1:counts-too-little", "P3.3:counts-too-little", "A3.9:counted", "A3.9:zeros-counted"),
    ),
    "dead units": ("S6.1:silent", "S4.2:dead", "P6.3:dead", "C5.1:bias", "C5.1:perhaps-bias"),
    "saturated by its inputs": ("P6.4:saturated", "S6.3:no-slope", "A5.8:not-scaled"),
    "vanishing gradient": ("A4.8:vanishing", "P6.2:vanishes"),
    "running statistics stand still": ("A2.4:untouched",),
    "evaluation mode left on": ("A2.1:left-on", "A2.1:parts-left-on"),
    "validated in training mode": ("A2.2:in-training",),
    "collapse": ("S4.3:collapsed", "A5.9:constant", "C7.1:starved"),
    "wrong sign": ("C1.2:wrong-sign", "V1.8:fell", "A3.1:rewards-errors"),
    "wrong reduction": ("C1.2:wrong-reduction",),
    "squashed twice": ("A3.1:squashed-twice", "P3.2:squashed-twice"),
    "softmax over the wrong axis": ("A3.1:wrong-axis", "P3.7:rows-mix", "G3.6:wrong-axis"),
    "broadcast": ("A3.2:broadcast", "P3.1:broadcast"),
    "wrong target": ("A3.3:not-shifted", "P1.3:not-shifted", "A5.6:unlike"),
    "wrong formula": ("A3.1:not-logarithms", "A3.1:out-of-reach"),
    "schedule stepped too seldom": (
        *("C2.1:stepped-too-seldom", "C2.2:not-reached", "P5.8:not-as-declared", "P5.8:warmup-longer-than-run"),
    ),
    "schedule too short": (
        *("C2.1:horizon-too-short", "C2.1:stepped-too-often", "C2.1:other-curve"),
        *("P5.8:counts-epochs", "P5.8:not-as-declared"),
    ),
    "schedule rises": ("C2.1:upside-down", "C2.1:other-curve", "D4.2:schedule", "P5.8:not-as-declared"),
    "optimizer state lost at every step": ("C6.2:rebuilt", "C6.2:empty", "C6.2:no-memory"),
    "gradients kept": ("A1.1:not-cleared", "P5.1:carried"),
    "gradients erased": ("C1.2:erased", "A1.2:erased", "P5.1:erased"),
    "clip in the wrong place": ("A1.3:after-step", "P5.2:after-step"),
    "logarithm of zero": ("E1.1:log-of-zero", "E1.1:zero-times-infinity"),
    "root of zero": ("E1.1:gradient-at-zero",),
    "example that is not finite": ("A5.5:non-finite", "E1.1:non-finite-input"),
    "example that cannot be learned": ("E1.1:ctc-no-path",),
    "number format": (
        *(
            "D3.1:overflow",
            "P5.7:overflow",
            "A4.5:rounded-away",
            "P4.6:rounded-away",
            "E1.1:fp16-overflow",
            "E1.1:optimizer-epsilon",
        ),
    ),
    "optimizer state lost at the resume": ("D2.3:optimizer-reset", "C6.2:rebuilt", "P5.6:lost"),
    "schedule begins again at the resume": ("C2.1:restarted",),
    "data begin again at the resume": ("A5.2:from-the-start",),
    "weights lost at the resume": ("A6.2:set-back", "A6.2:back-at-start"),
}
