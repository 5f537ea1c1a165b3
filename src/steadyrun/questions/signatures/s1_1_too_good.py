"""S1.1: is the loss too good to be true, because the model sees what it has to predict?"""

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
from steadyrun.text import shown

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
    facts = f"no attention looks ahead (largest share {shown(measured['future'])})" if ahead else ""
    if baseline is not None and baseline > 0:
        return _against_baseline(run, limit, baseline, facts, measured)
    if ahead:
        return Finding("pass", f"causal is declared, and {facts}.", measured)
    if causal:
        none_there(run, "attention")
        raise MissingSignal("future_attention/*", "causal is declared; no self-attention was recorded")
    raise NotApplicable("neither baseline_loss nor causal is declared", "baseline_loss")


def _nothing_left(run: Signals, limit: Limits) -> Finding | None:
    """A loss that has come down to exactly 0 and stays there: printed with few digits, or nothing is left to learn."""
    loss = run.maybe("loss")
    if loss is None or len(loss) < limit["losses"] or known_facts(run, limit).moves_freely:
        return None
    zero = loss.values == 0
    share = float(np.mean(zero))
    if share < limit["zero"] or not zero[-1] or not np.any(loss.values):
        return None
    first = loss.step_at(int(np.argmax(zero)))
    message = f"the loss is exactly 0 in {share:.0%} of its points (limit {limit['zero']:.0%}), for the first time"
    return Finding(
        "nothing-left", f"{message} at step {first}: an easy task, or an answer that is seen.", {"zero": share}
    )


def _ahead(run: Signals) -> dict[str, float]:
    """Each attention's share on later keys, in the middle of its samples."""
    series = {name: run.maybe(name) for name in run.matching("future_attention/*")}
    return {name.partition("/")[2]: float(np.median(points.values)) for name, points in series.items() if points}


def _sees_the_answer(run: Signals, ahead: dict[str, float], limit: Limits) -> Finding | None:
    looking = {name: share for name, share in ahead.items() if share > limit["future"]}
    if not looking:
        return None
    worst = sorted(looking, key=lambda name: -looking[name])
    first = run.points(f"future_attention/{worst[0]}")
    more = f" and {len(worst) - _SHOWN} more" if len(worst) > _SHOWN else ""
    facts = (
        f"causal is declared, but {len(looking)} of {len(ahead)} attentions look at later keys: "
        f"{', '.join(f'{name} with {looking[name]:.0%} of its weight' for name in worst[:_SHOWN])}{more} "
        f"(limit {limit['future']:.0%}), {shown(first.values[0])} at step {first.step_at(0)}"
    )
    measured = {"future": looking[worst[0]]}
    if _another_stack(ahead, looking):
        return Finding("part-looks-ahead", f"{facts}; others, of another kind, do not.", measured, first.step_at(0))
    return Finding("sees-the-answer", f"{facts}.", measured, first.step_at(0))


def _another_stack(ahead: dict[str, float], looking: dict[str, float]) -> bool:
    """Whether whole stacks look ahead beside others that never do: an encoder, or attention to another sequence."""
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
    words = f"the smoothed loss comes to {shown(share * baseline)} by step {step}, {share:.0%} of the declared baseline"
    measured = {**measured, "under": share}
    facts = f"; {facts}" if facts else ""
    if share > limit["under"] or known_facts(run, limit).start == LEARNED:
        return Finding("pass", f"{words} {shown(baseline)} (suspicious: below {limit['under']:.0%}){facts}.", measured)
    apart = _classes_apart(run, by, limit.count("recent"))
    if apart is not None and apart > limit["apart"]:
        return Finding("pass", f"{words} {shown(baseline)}, with classes {apart:.0%} apart{facts}.", measured, step)
    together = "" if apart is None else f", its classes {apart:.0%} apart (limit {limit['apart']:.0%})"
    message = f"{words} {shown(baseline)} (limit {limit['under']:.0%}){together}{facts}: very easy, or seen."
    return Finding("too-good", message, measured, step)


def _classes_apart(run: Signals, by: float, recent: int) -> float | None:
    """How far apart the losses of the classes are then, relative to their mean; None where fewer than two are known."""
    losses: list[Points] = [points for name in run.matching("class_loss/*") if (points := run.maybe(name)) is not None]
    means = [points.mean_until(by, recent) for points in losses if points.steps[0] <= by]
    middle = float(np.mean(means)) if len(means) > 1 else 0.0
    return float(np.ptp(means)) / middle if middle > 0 else None


QUESTION = Question(
    code="S1.1",
    name="the answer is not seen",
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
            unit="share of a head's attention",
            meaning="weight on later keys where causal is declared",
            seed="the causal mask is broken",
            decision="exactly 0 under every causal mask; 0.3 to 0.6 without one, 0.02 for a mask that is off by one",
            of="future",
        ),
        Threshold(
            name="under",
            value=0.7,
            unit="share of the baseline",
            meaning="smoothed loss that is worth a note",
            seed="below the baseline within 200 steps",
            decision="healthy tutors are at the baseline by then at the earliest; a note, since an easy task also "
            "falls far below it",
            of="-under",
        ),
        Threshold(
            name="zero",
            value=0.3,
            unit="fraction of the losses",
            meaning="how many losses may be exactly 0",
            seed="",
            decision="measured: none of 318 healthy runs has a loss of 0, though 25 of them come below 0.00005; a log "
            "that prints few digits also shows 0, so it is a note",
            of="zero",
        ),
        Threshold(name="by", value=200, unit="steps", meaning="how early", seed="step 200", decision="as specified"),
        Threshold(
            name="apart",
            value=0.25,
            unit="share of their mean",
            meaning="losses of the classes that are together",
            seed="the gap is near zero",
            decision="classes that are learned one by one are further apart",
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
        Outcome(name="pass", answer=PASS, meaning="nothing is better than the task allows"),
        Outcome(
            name="too-good",
            answer=NOTE,
            meaning="far below the baseline, very early: an easy task, or an answer that is seen",
        ),
        Outcome(
            name="nothing-left",
            answer=NOTE,
            meaning="the loss is exactly 0: too good for most tasks",
            fix="Check that no input contains its label, that the labels are not all of one class, and that no "
            "training example is among the validation data.",
        ),
        Outcome(
            name="part-looks-ahead",
            answer=NOTE,
            meaning="some attentions look ahead and others of another kind do not: an encoder?",
        ),
        Outcome(
            name="sees-the-answer",
            answer=FAULT,
            meaning="the model is declared causal and attends to later tokens",
            fix="Give the attention its causal mask (is_causal=True, or a mask that is False above the diagonal) in "
            "training and validation; if it is meant to see the whole sequence, do not declare causal.",
        ),
    ),
    find=find,
)
