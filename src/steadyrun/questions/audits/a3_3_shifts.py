"""A3.3: is each target the token that follows its input?"""

from __future__ import annotations

from functools import reduce

import numpy as np

from steadyrun.questions.form import FAULT, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.intent import in_a_row, of_targets
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent


def find(run: Signals, limit: Limits) -> Finding:
    why = "no cross-entropy over the tokens of an embedding was seen"
    series = [of_targets(run, f"targets/{name}", why) for name in ("same", "next", "second")]
    common = reduce(np.intersect1d, [points.steps for points in series])  # a damaged file may lack some steps
    if not len(common):
        raise MissingSignal("targets/next", "the samples of the targets have no common step", "record the run again")
    same, following, second = (points.where(np.isin(points.steps, common)) for points in series)
    measured = {
        name: float(np.median(p.values)) for name, p in (("same", same), ("next", following), ("second", second))
    }
    shares = ", ".join(f"{percent(share)} {_WORDS[name]}" for name, share in measured.items())
    facts = f"Of the supervised targets, {shares}"
    twice = in_a_row((second.values > limit["share"]) & (following.values < limit["other"]), limit["samples"])
    if twice is not None:
        return Finding("shifted-twice", f"{facts}.", measured, second.step_at(twice))
    copied = in_a_row((same.values > limit["share"]) & (following.values < limit["other"]), limit["samples"])
    if copied is None:
        return Finding("pass", f"{facts}.", measured)
    if cannot_look_ahead(run, limit["ahead"]):
        return Finding("not-shifted", f"{facts}. Attention is causal.", measured, same.step_at(copied))
    return Finding("copies", f"{facts}. Attention is not known to be causal.", measured, same.step_at(copied))


def cannot_look_ahead(run: Signals, ahead: float) -> bool:
    """Whether positions see only earlier positions: declared, or measured in every attention layer."""
    if "causal" in run.config:
        return run.config["causal"] is True
    looks = [points for name in run.matching("future_attention/*") if (points := run.maybe(name)) is not None]
    return bool(looks) and all(float(np.max(points.values)) < ahead for points in looks)


_WORDS = {"same": "equal their input token", "next": "the next token", "second": "the token after that"}

QUESTION = Question(
    code="A3.3",
    name="targets are the next tokens",
    asks="Is each target the token right after its input, not the input itself and not the token after next?",
    why="Shifted twice, a model learns to predict two tokens ahead: a higher loss and useless text. Not shifted, the "
    "answer is in the input: training and validation loss both fall to zero.",
    needs=("objective",),
    panel=1,
    thresholds=(
        Threshold(
            name="share",
            value=0.9,
            unit="of the supervised targets",
            meaning="how many must match at the wrong position",
            seed="",
            decision="a real shift affects every target",
        ),
        Threshold(
            name="other",
            value=0.5,
            unit="of the supervised targets",
            meaning="how many may match at the right position at most",
            seed="",
            decision="repetitive text matches both",
        ),
        Threshold(
            name="samples",
            value=2,
            unit="consecutive sampled steps",
            meaning="how many must show it",
            seed="",
            decision="one unusual batch does not count",
        ),
        Threshold(
            name="ahead",
            value=1e-3,
            unit="fraction of the attention",
            meaning="a smaller weight on later keys counts as none",
            seed="",
            decision="exactly 0 under every causal mask, as in S1.1",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="targets are the next tokens, or unrelated to the inputs"),
        Outcome(
            name="shifted-twice",
            answer=FAULT,
            meaning="targets are shifted twice: two tokens ahead of their inputs",
            fix="Shift once: pass labels equal to the inputs to a model that shifts them itself, or shift them "
            "beforehand and compare without shifting.",
            explains=("C1", "C4", "D4", "S1", "S6"),
        ),
        Outcome(
            name="not-shifted",
            answer=FAULT,
            meaning="targets are not shifted: the model copies its input",
            fix="Compare the scores at position t with the token at t + 1: logits[:, :-1] with ids[:, 1:].",
            explains=("C1", "C4", "S1", "S2", "S6"),
        ),
        Outcome(
            name="copies",
            answer=SUSPECT,
            meaning="targets equal the inputs: a missing shift, or an autoencoder",
            fix="Compare the scores at position t with the token at t + 1: logits[:, :-1] with ids[:, 1:].",
            experiment="Print the inputs and targets of one example. In a language model the targets are the inputs, "
            "one position later.",
        ),
    ),
    find=find,
    always=True,
)
