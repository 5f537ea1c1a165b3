"""S6.1: how many hidden units never speak?"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.curves import Floats
from steadyrun.signals.declared_schedule import number
from steadyrun.signals.depth import from_random_weights, from_the_start, none_there
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Points, Signals


@dataclass(frozen=True)
class Layer:
    """The dead units of one layer over the run."""

    name: str
    dead: Points
    units: float
    silent: Points | None  # share of the inputs on which no unit is active

    @property
    def shares(self) -> Floats:
        return self.dead.values / self.units


def find(run: Signals, limit: Limits) -> Finding:
    if not run.matching("dead_units/*"):
        none_there(run, "dead units")
    layers = _layers(run)
    if not layers:
        raise NotApplicable("how many units the layers have is not recorded, so that no share can be told")
    worst = max(layers, key=lambda layer: (float(np.min(layer.shares)), float(layer.shares[-1])))
    if _silent(worst, limit):
        return _about_silent(run, worst, layers, limit)
    last = max(layers, key=lambda layer: float(layer.shares[-1]))
    share = float(last.shares[-1])
    step = last.dead.step_at(len(last.dead) - 1)
    facts = (
        f"{last.name} has most: {last.dead.values[-1]:.0f} of {last.units:.0f} units dead at step {step} ({share:.1%}"
    )
    usual = f"; up to {limit['usual']:.0%} is usual, limit {limit['share']:.0%})"
    return Finding("dead" if share > limit["share"] else "pass", f"{facts}{usual}.", {"share": share}, step)


def _layers(run: Signals) -> list[Layer]:
    counts = run.inferred.get("hidden_units")
    totals = counts if isinstance(counts, dict) else {}
    return [
        Layer(name, dead, units, run.maybe(f"silent_inputs/{name}"))
        for name, dead in run.family("dead_units/*").items()
        if (units := number(totals.get(name))) is not None and units > 0
    ]


def _silent(layer: Layer, limit: Limits) -> bool:
    lasting = from_the_start(layer.dead, limit["samples"], limit["steps"])
    return lasting and bool(np.all(layer.shares >= limit["all"]))


def _all_alike(run: Signals, layer: Layer, layers: list[Layer], limit: Limits) -> bool:
    """Whether the layer is of a residual block, and all of its kind are silent."""
    blocks = [str(entry.get("name")) for entry in run.listed("blocks") if entry.get("role") == "block"]
    if "#" in layer.name or not any(layer.name == block or layer.name.startswith(f"{block}.") for block in blocks):
        return False
    kind = re.sub(r"\d+", "*", layer.name)
    return all(_silent(other, limit) for other in layers if re.sub(r"\d+", "*", other.name) == kind)


def _about_silent(run: Signals, layer: Layer, layers: list[Layer], limit: Limits) -> Finding:
    """All units dead from the first sample to the last: a fault where there is nothing else for an input, either."""
    least = float(np.min(layer.shares))
    measured = {"share": least}
    facts = (
        f"layer {layer.name}: at least {least:.1%} of its {layer.units:.0f} units are dead in all {len(layer.dead)} "
        f"samples, from step {layer.dead.step_at(0)} to {layer.dead.step_at(len(layer.dead) - 1)} (limit "
        f"{limit['all']:.0%})"
    )
    if layer.silent is None or float(np.min(layer.silent.values)) < limit["all"]:
        kept = "not recorded" if layer.silent is None else f"{1 - float(np.min(layer.silent.values)):.1%}"
        return Finding("sparse", f"{facts}; the share of inputs with an active unit is {kept}.", measured, 0)
    # Of several alike (experts) one may rightly get nothing to do, and so may a branch beside the model's stream.
    if not _all_alike(run, layer, layers, limit) or not from_random_weights(run, layer.name, known_facts(run, limit)):
        why = "others like it are alive, it is no part of a stack of blocks, or it does not surely start untrained"
        return Finding("sparse", f"{facts}; but {why}.", measured, 0)
    message = f"{facts}, and on at least {float(np.min(layer.silent.values)):.1%} of the inputs no unit is active."
    return Finding("silent", message, measured, layer.dead.step_at(0))


QUESTION = Question(
    code="S6.1",
    name="dead units",
    asks="Are more hidden units dead than usual, or nearly all of a layer from step 0?",
    why="A unit that is silent on every example has no gradient and never comes back. A few are usual; a layer in "
    "which nearly all are silent from the start is switched off, and training goes on without it.",
    needs=("dead_units/*", "silent_inputs/*"),
    panel=6,
    thresholds=(
        Threshold(
            name="share",
            value=0.5,
            unit="of a layer's units",
            meaning="dead units at the end that are worth a note",
            seed="5 to 10% is normal",
            decision="healthy tutors have none; small networks with ReLU have 11 to 42% on one batch and are fine",
            of="share",
        ),
        Threshold(
            name="usual",
            value=0.1,
            unit="of a layer's units",
            meaning="what is said to be usual",
            seed="5 to 10%",
            decision="as specified; said in the answer",
        ),
        Threshold(
            name="all",
            value=0.99,
            unit="of a layer's units",
            meaning="a layer that is switched off",
            seed="nearly all neurons dead from step 0",
            decision="together with inputs on which no unit at all is active: a sparse layer (top-k, an "
            "autoencoder with few "
            "active features) has dead units by this count, but a few units for every input",
        ),
        Threshold(
            name="samples",
            value=5,
            unit="samples",
            meaning="how many must agree",
            seed="",
            decision="the first of them at step 0",
        ),
        Threshold(
            name="steps",
            value=100,
            unit="steps",
            meaning="how long it must be so",
            seed="from step 0",
            decision="any warmup is over",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="no more dead units than usual"),
        Outcome(name="dead", answer=NOTE, meaning="half of a layer's units or more are dead at the end"),
        Outcome(
            name="sparse",
            answer=NOTE,
            meaning="all units count as dead from the start, but that the layer is switched off is not certain",
        ),
        Outcome(
            name="silent",
            answer=FAULT,
            meaning="a layer of an untrained model is switched off from the start and stays so",
            fix="Look at the biases and the scale before the activation: a ReLU with strongly negative biases "
            "never opens. "
            "Start biases at 0 and weights by Kaiming's rule.",
            may_pass=True,
            explains=("P3.5", "P6.1"),
        ),
    ),
    find=find,
)
