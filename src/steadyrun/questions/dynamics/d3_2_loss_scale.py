"""D3.2: the loss scale of fp16 training."""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.records import Series
from steadyrun.signals.intent import longest_run, regime
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals
from steadyrun.text import counted, percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    if (dtype := regime(run)) != "fp16":
        why = f"only fp16 needs a loss scale; the run computes in {dtype or 'an unknown dtype'}"
        raise NotApplicable(why, *([] if dtype else ["dtype"]))
    if not run.has("loss_scale"):
        raise MissingSignal(
            "loss_scale",
            "the loss scale of this fp16 run is not recorded",
            "call run.watch(…, scaler=scaler), or run.log(loss_scale=…)",
        )
    scale = run.raw("loss_scale")
    values = scale.values[np.isfinite(scale.values)]
    if not len(values):
        raise MissingSignal("loss_scale", "no recorded loss scale is finite", "record a finite loss scale")
    bad = _overflows(run)
    skips, start = _skips(run)
    measured = {
        "lowest": float(np.min(values)),
        "first": float(values[0]),
        "longest_skip": float(skips),
        "overflows": float(len(bad)),
    }
    facts = (
        f"The loss scale starts at {shown(values[0])}, is {shown(np.min(values))} at its lowest and "
        f"{shown(values[-1])} at the end{_share(run)}"
    )
    if float(values[-1]) < min(limit["floor"], values[0] / limit["fallen"]):
        step = int(scale.steps[int(np.argmax(scale.values < limit["floor"]))])
        return Finding("collapsed", f"{facts}. It is below {limit['floor']:g} from step {step} on.", measured, step)
    if len(bad) >= limit["ignored"] and float(np.ptp(values)) == 0 and values[0] > 1:
        return Finding(
            "constant",
            f"The loss scale stays at {shown(values[0])} in spite of {counted(len(bad), 'overflow')}.",
            measured,
            int(bad[0]),
        )
    if skips >= limit["skips"]:
        return Finding(
            "skipping",
            f"{skips} steps in a row were skipped from step {start} on (limit {limit['skips']:g}). {facts}.",
            measured,
            start,
        )
    if float(np.min(values)) < max(values[0] / limit["fallen"], limit["low"]):
        return Finding("low", f"{facts}.", measured)
    return Finding("pass", f"{facts}; {counted(len(bad), 'overflow')}.", measured)


def _overflows(run: Signals) -> np.ndarray:
    if not run.has("grad_norm"):
        return np.array([], int)
    norms: Series = run.raw("grad_norm")
    return norms.steps[~np.isfinite(norms.values)]


def _share(run: Signals) -> str:
    """In words: the fraction of skipped steps; empty if none was skipped."""
    skipped = run.raw("skipped").values if run.has("skipped") else np.array([])
    share = float(np.mean(skipped)) if len(skipped) else 0.0
    return f"; {percent(share)} of the steps were skipped" if share else ""


def _skips(run: Signals) -> tuple[int, int]:
    """The longest series of skipped steps, and its first step.

    Skipped steps at the start of a run do not count: the scaler is searching for its scale.
    """
    if not run.has("skipped"):
        return 0, 0
    skipped = run.raw("skipped")
    lost = skipped.values >= 1  # in a sparse log a point may be the fraction of its steps that were skipped
    first = int(np.argmin(lost)) if len(lost) and not np.all(lost) else 0
    lost[:first] = False
    length, index = longest_run(lost)
    return length, int(skipped.steps[index]) if length else 0


QUESTION = Question(
    code="D3.2",
    name="loss scale",
    asks="Does the loss scale grow in normal training, halve on overflow, and stay above 1?",
    why="A dynamic scale finds the largest factor that does not overflow. A scale that never changes is not dynamic; "
    "a scale below 1 means that values overflow at any scale.",
    needs=("loss_scale", "skipped", "grad_norm"),
    panel=3,
    thresholds=(
        Threshold(
            name="floor",
            value=1,
            unit="",
            meaning="a loss scale below this has collapsed",
            seed="1",
            decision="the rule of thumb, unchanged",
            of="-lowest",
        ),
        Threshold(
            name="skips",
            value=20,
            unit="steps in a row",
            meaning="how many steps may be skipped in a row",
            seed="",
            decision="a scale of 65536 needs at most 16 halvings to 1",
            of="longest_skip",
        ),
        Threshold(
            name="ignored",
            value=3,
            unit="overflows",
            meaning="how many overflows a constant scale may ignore",
            seed="constant scale",
            decision="the scale of a short run is also constant, but without overflows",
        ),
        Threshold(
            name="fallen",
            value=1024,
            unit="times",
            meaning="fall that is a note",
            seed="",
            decision="ordinary runs lose a few halvings",
        ),
        Threshold(
            name="low",
            value=64,
            unit="",
            meaning="loss scale that is a note",
            seed="",
            decision="a public fp16 log falls to 8 and recovers; ordinary logs stay above 2048",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the loss scale adapts as it should"),
        Outcome(
            name="low",
            answer=NOTE,
            meaning="the loss scale is very low, but training continued",
            fix="No action is needed while the loss falls; otherwise switch to bf16.",
        ),
        Outcome(
            name="constant",
            answer=FAULT,
            meaning="the loss scale does not react to overflow",
            fix="Call scaler.update() after every scaler.step(), and use a dynamic scale.",
            may_pass=True,
        ),
        Outcome(
            name="collapsed",
            answer=FAULT,
            meaning="the loss scale collapsed: values overflow at any scale",
            fix="Find the activation that overflows (initial weights, residual stream, an attention mask too large "
            "for fp16), or switch to bf16.",
            may_pass=True,
            explains=("P5.7", "P6.1", "P6.5"),
        ),
        Outcome(
            name="skipping",
            answer=FAULT,
            meaning="the optimizer does not step any more",
            fix="Find the tensor that is not finite at any scale, or switch to bf16.",
        ),
    ),
    find=find,
)
