"""S1.1: does the model see the answer, or is the loss too good to be true?"""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.loss_record import LOSSES
from steadyrun.signals.depth import none_there
from steadyrun.signals.facts import LEARNED
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.progress import progress
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.text import percent, shown

_SHOWN = 3


def find(run: Signals, limit: Limits) -> Finding:
    causal = run.config.get("causal") is True
    ahead = _ahead(run) if causal else {}
    if ahead and (finding := _sees_the_answer(run, ahead, limit)) is not None:
        return finding
    if (nothing := _nothing_left(run, limit)) is not None:
        return nothing
    baseline = run.declared("baseline_loss")
    measured = {"future": max(ahead.values())} if ahead else {}
    facts = f"attention gives at most {percent(measured['future'])} of its weight to later keys" if ahead else ""
    if baseline is not None and baseline > 0:
        return _against_baseline(run, limit, baseline, facts, measured)
    if ahead:
        return Finding("pass", f"The run is declared causal, and {facts}.", measured)
    if causal:
        none_there(run, "attention")
        raise MissingSignal("future_attention/*", "causal is declared, but no self-attention was recorded")
    raise NotApplicable("neither baseline_loss nor causal is declared", "baseline_loss")


def _nothing_left(run: Signals, limit: Limits) -> Finding | None:
    """A loss that reaches exactly 0 and stays there: few digits are printed, or nothing is left to learn."""
    loss = run.maybe("loss")
    if loss is None or len(loss) < limit["losses"] or known_facts(run, limit).moves_freely:
        return None
    zero = loss.values == 0
    share = float(np.mean(zero))
    if share < limit["zero"] or not zero[-1] or not np.any(loss.values):
        return None
    first = loss.step_at(int(np.argmax(zero)))
    message = (
        f"Loss is exactly 0 in {percent(share)} of its points (limit {percent(limit['zero'])}), first at step {first}."
    )
    return Finding("nothing-left", message, {"zero": share})


def _ahead(run: Signals) -> dict[str, float]:
    """By attention layer: the fraction of its weight on later keys, as the median of its samples."""
    series = {name: run.maybe(name) for name in run.matching("future_attention/*")}
    return {name.partition("/")[2]: float(np.median(points.values)) for name, points in series.items() if points}


def _sees_the_answer(run: Signals, ahead: dict[str, float], limit: Limits) -> Finding | None:
    looking = {name: share for name, share in ahead.items() if share > limit["future"]}
    if not looking:
        return None
    worst = sorted(looking, key=lambda name: -looking[name])
    first = run.points(f"future_attention/{worst[0]}")
    more = f" and {len(worst) - _SHOWN} more" if len(worst) > _SHOWN else ""
    attend = "attends" if len(looking) == 1 else "attend"
    facts = (
        f"The run is declared causal, but {len(looking)} of {len(ahead)} attention layers {attend} to later keys: "
        f"{', '.join(f'{name} with {percent(looking[name])}' for name in worst[:_SHOWN])}{more} "
        f"of the weight (limit {percent(limit['future'])})"
    )
    measured = {"future": looking[worst[0]]}
    if _another_stack(ahead, looking):
        return Finding("part-looks-ahead", f"{facts}. Other stacks do not.", measured, first.step_at(0))
    return Finding("sees-the-answer", f"{facts}.", measured, first.step_at(0))


def _another_stack(ahead: dict[str, float], looking: dict[str, float]) -> bool:
    """Whether whole stacks look ahead and others never do: an encoder, or attention to another sequence."""
    stacks = defaultdict(list)
    for name in ahead:
        stacks[re.sub(r"\d+", "*", name)].append(name in looking)
    kinds = {(any(looks), all(looks)) for looks in stacks.values()}
    return kinds == {(True, True), (False, False)}


def _against_baseline(run: Signals, limit: Limits, baseline: float, facts: str, measured: dict[str, float]) -> Finding:
    training = progress(run, limit["losses"])
    by = training.loss.steps[0] + limit["by"]
    early = training.smooth[training.loss.steps <= by]
    share = float(np.min(early)) / baseline
    step = training.loss.step_at(int(np.argmin(early)))
    words = f"Smoothed loss reaches {shown(share * baseline)} at step {step}, {percent(share)} of the declared baseline"
    measured = {**measured, "under": share}
    facts = f"; {facts}" if facts else ""
    if share > limit["under"] or known_facts(run, limit).start == LEARNED:
        return Finding(
            "pass", f"{words} {shown(baseline)} (expected at least {percent(limit['under'])}){facts}.", measured
        )
    apart = _classes_apart(run, by, limit.count("recent"))
    if apart is not None and apart > limit["apart"]:
        message = f"{words} {shown(baseline)}, with class losses {percent(apart)} apart{facts}."
        return Finding("pass", message, measured, step)
    together = f", with class losses {percent(apart)} apart" if apart is not None else ""
    message = f"{words} {shown(baseline)} (expected at least {percent(limit['under'])}){together}{facts}."
    return Finding("too-good", message, measured, step)


def _classes_apart(run: Signals, by: float, recent: int) -> float | None:
    """How far apart the class losses are by then, relative to their mean; None if fewer than two are known."""
    losses: list[Points] = [points for name in run.matching("class_loss/*") if (points := run.maybe(name)) is not None]
    means = [points.mean_until(by, recent) for points in losses if points.steps[0] <= by]
    mean = float(np.mean(means)) if len(means) > 1 else 0.0
    return float(np.ptp(means)) / mean if mean > 0 else None


QUESTION = Question(
    code="S1.1",
    name="the model does not see the answer",
    asks="Does the loss fall to exactly 0, or far below the declared baseline within 200 steps, or does attention see "
    "later tokens?",
    why="A model that sees the token it has to predict copies it: the loss falls far below what the task allows, "
    "validation with the same mask falls with it, and all classes fall together. Only the attention itself proves it.",
    needs=("loss", "baseline_loss", "causal", "future_attention/*"),
    panel=1,
    thresholds=(
        Threshold(
            name="future",
            value=0.01,
            unit="fraction of a head's attention",
            meaning="how much weight may be on later keys if `causal` is declared",
            seed="the causal mask is broken",
            decision="exactly 0 under every causal mask; 0.3 to 0.6 without a mask, 0.02 for a mask that is off by one",
            of="future",
        ),
        Threshold(
            name="under",
            value=0.7,
            unit="of the baseline",
            meaning="a lower smoothed loss is noted",
            seed="below the baseline within 200 steps",
            decision="healthy tutor runs reach the baseline by then at the earliest; a note, since an easy task also "
            "falls far below it",
            of="-under",
        ),
        Threshold(
            name="zero",
            value=0.3,
            unit="fraction of the losses",
            meaning="how many losses may be exactly 0",
            seed="",
            decision="measured: none of 318 healthy runs has a loss of 0, though 25 of them fall below 0.00005; a log "
            "that prints few digits also shows 0, so it is a note",
            of="zero",
        ),
        Threshold(
            name="by",
            value=200,
            unit="steps",
            meaning="how early the loss must fall that far",
            seed="step 200",
            decision="a common rule of thumb",
        ),
        Threshold(
            name="apart",
            value=0.25,
            unit="fraction of their mean",
            meaning="class losses nearer than this fall together",
            seed="the gap is near zero",
            decision="classes that are learned one after another are further apart",
        ),
        Threshold(
            name="recent",
            value=20,
            unit="losses",
            meaning="how many losses of a class are averaged",
            seed="",
            decision="one loss of a class is noisy",
        ),
        LOSSES,
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the loss is not better than the task allows"),
        Outcome(
            name="too-good",
            answer=NOTE,
            meaning="the loss is far below the baseline very early",
            fix="Check that no input contains its label, and that baseline_loss in the config is right.",
        ),
        Outcome(
            name="nothing-left",
            answer=NOTE,
            meaning="the loss is exactly 0: too good for most tasks",
            fix="Check that no input contains its label, that labels have more than one class, and that no training "
            "example is in the validation data.",
        ),
        Outcome(
            name="part-looks-ahead",
            answer=NOTE,
            meaning="one stack attends to later tokens and another does not",
            fix="No action is needed for an encoder; a decoder needs a causal mask (is_causal=True).",
        ),
        Outcome(
            name="sees-the-answer",
            answer=FAULT,
            meaning="the model sees the tokens it has to predict",
            fix="Pass a causal mask to attention (is_causal=True, or a mask that is False above the diagonal) in "
            "training and validation. If the model should see the whole sequence, do not declare causal.",
        ),
    ),
    find=find,
)
