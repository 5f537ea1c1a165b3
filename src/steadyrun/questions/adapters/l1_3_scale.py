"""L1.3: do the adapters have a usual scale and rate?"""

from __future__ import annotations

import math

from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.adapters import adapters_of
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    adapters = adapters_of(run)
    measured: dict[str, float] = {}
    scale = run.about("adapters").get("scale")
    if isinstance(scale, list) and all(isinstance(value, int | float) for value in scale):
        measured |= {"smallest": float(scale[0]), "largest": float(scale[-1])}
    highest = max(
        (rate for name, rate in adapters.rates.items() if name in adapters.parameters and math.isfinite(rate)),
        default=None,
    )
    if highest is not None:
        measured["rate"] = highest
    for outcome, name in (("large", "largest"), ("small", "smallest")):
        scale_now, bound = measured.get(name, 1.0), limit[outcome]
        if scale_now > bound if outcome == "large" else scale_now < bound:
            return Finding(outcome, f"The scale of the adapters is {shown(scale_now)} (limit {bound:g}).", measured)
    adaptive = any("adam" in str(group.get("class", "")).lower() for group in run.listed("param_groups"))
    if highest is not None and adaptive and highest > limit["fast"]:
        message = f"The adapters train with a rate of {shown(highest)} (limit {shown(limit['fast'])})."
        return Finding("high-rate", message, measured)
    if highest is not None and adaptive and 0 < highest < limit["rate"]:
        message = f"The adapters train with a rate of {shown(highest)}, below {shown(limit['rate'])}."
        return Finding("low-rate", message, measured)
    words = [f"scale {shown(measured['largest'])}"] if "largest" in measured else []
    words += [f"rate {shown(highest)}"] if highest is not None else []
    return Finding("usual", f"The adapters have {' and '.join(words) or 'no recorded scale'}.", measured)


QUESTION = Question(
    code="L1.3",
    name="adapter scale and rate",
    asks="Are the scale (alpha / r) and the learning rate of the adapters in the usual range?",
    why="The scale multiplies every update of an adapter. Adapters start at zero and need a rate about ten times that "
    "of full fine-tuning.",
    needs=("adapters", "param_groups"),
    panel=None,
    thresholds=(
        Threshold(
            name="large",
            value=32,
            unit="alpha / r",
            meaning="a larger scale makes every update too large",
            seed="",
            decision="chosen: usual scales are 0.25 to 4; 16 occurs with rank 1",
        ),
        Threshold(
            name="small",
            value=0.01,
            unit="alpha / r",
            meaning="a smaller scale makes the adapters learn too slowly",
            seed="",
            decision="chosen: a hundredth of the usual scale",
        ),
        Threshold(
            name="rate",
            value=1e-5,
            unit="learning rate of Adam",
            meaning="a rate below this is one for full fine-tuning",
            seed="",
            decision="chosen: adapters are trained with 5e-5 to 1e-3, whole models with 1e-6 to 5e-5",
        ),
        Threshold(
            name="fast",
            value=0.1,
            unit="learning rate of Adam",
            meaning="with a higher rate, one step of Adam moves each weight of an adapter by more than its size",
            seed="",
            decision="chosen: a hundred times the usual rates; the first matrix is drawn within 1 / sqrt(d)",
        ),
    ),
    outcomes=(
        Outcome(name="usual", answer=PASS, meaning="scale and rate of the adapters are usual"),
        Outcome(
            name="large",
            answer=SUSPECT,
            meaning="the scale of the adapters is far too large",
            fix="Set lora_alpha to between r / 2 and 2 r.",
            experiment="Train 50 steps with lora_alpha=r and compare the losses at step 50. If the new one is lower, "
            "the scale was too large.",
            explains=("C4", "D2"),
        ),
        Outcome(
            name="small",
            answer=SUSPECT,
            meaning="the scale of the adapters is far too small",
            fix="Set lora_alpha to between r / 2 and 2 r.",
            experiment="Train 50 steps with lora_alpha=r and compare the losses at step 50. If the new one is lower, "
            "the scale was too small.",
            explains=("C4", "V1.1"),
        ),
        Outcome(
            name="high-rate",
            answer=SUSPECT,
            meaning="the rate of the adapters is far too high: each step overwrites them",
            fix="Set the rate of the adapters to 1e-4 to 1e-3.",
            experiment="Train 50 steps with a hundredth of the rate and compare the losses at step 50. If the new one "
            "is lower, the rate was too high.",
            explains=("C4", "C7", "D2", "V1", "S"),
        ),
        Outcome(
            name="low-rate",
            answer=NOTE,
            meaning="the adapters train with a rate for full fine-tuning",
            fix="Try ten times the rate: 1e-4 to 2e-4 is usual for adapters.",
        ),
    ),
    find=find,
    always=True,
    special=True,
)
