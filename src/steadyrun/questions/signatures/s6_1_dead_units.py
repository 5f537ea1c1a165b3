"""S6.1: how many hidden units are dead?"""

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
from steadyrun.text import percent


@dataclass(frozen=True)
class Layer:
    """The dead units of one layer over the run."""

    name: str
    dead: Points
    units: float
    silent: Points | None  # fraction of the inputs on which no unit is active

    @property
    def shares(self) -> Floats:
        return self.dead.values / self.units


def find(run: Signals, limit: Limits) -> Finding:
    if not run.matching("dead_units/*"):
        none_there(run, "dead units")
    layers = _layers(run)
    if not layers:
        raise NotApplicable("the number of units per layer is not recorded")
    worst = max(layers, key=lambda layer: (float(np.min(layer.shares)), float(layer.shares[-1])))
    if _silent(worst, limit):
        return _about_silent(run, worst, layers, limit)
    last = max(layers, key=lambda layer: float(layer.shares[-1]))
    share = float(last.shares[-1])
    step = last.dead.step_at(len(last.dead) - 1)
    facts = (
        f"{last.name} has the most dead units: {last.dead.values[-1]:,.0f} of {last.units:,.0f} at step {step}, "
        f"{percent(share)} (normally up to {percent(limit['usual'])}, limit {percent(limit['share'])})."
    )
    return Finding("dead" if share > limit["share"] else "pass", facts, {"share": share}, step)


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
    """Whether the layer belongs to a residual block, and all layers of its kind are silent."""
    blocks = [str(entry.get("name")) for entry in run.listed("blocks") if entry.get("role") == "block"]
    if "#" in layer.name or not any(layer.name == block or layer.name.startswith(f"{block}.") for block in blocks):
        return False
    kind = re.sub(r"\d+", "*", layer.name)
    return all(_silent(other, limit) for other in layers if re.sub(r"\d+", "*", other.name) == kind)


def _about_silent(run: Signals, layer: Layer, layers: list[Layer], limit: Limits) -> Finding:
    """A layer with all units dead from the first sample to the last; a fault if inputs have no other path."""
    least = float(np.min(layer.shares))
    measured = {"share": least}
    amount = "all" if least >= 1 else f"at least {percent(least)} of its"
    facts = (
        f"{layer.name} has {amount} {layer.units:,.0f} units dead from step {layer.dead.step_at(0)} to step "
        f"{layer.dead.step_at(len(layer.dead) - 1)} (limit {percent(limit['all'])})"
    )
    if layer.silent is None or float(np.min(layer.silent.values)) < limit["all"]:
        kept = "Whether any input activates a unit is not recorded"
        if layer.silent is not None:
            kept = f"Some unit is active on up to {percent(1 - float(np.min(layer.silent.values)))} of the inputs"
        return Finding("sparse", f"{facts}. {kept}.", measured, 0)
    # One of several similar layers (experts) may rightly get no input, and so may a branch beside the main stream.
    if not _all_alike(run, layer, layers, limit) or not from_random_weights(run, layer.name, known_facts(run, limit)):
        why = "Similar layers are active, it is outside the residual blocks, or it may have started trained"
        return Finding("sparse", f"{facts}. {why}.", measured, 0)
    quiet = float(np.min(layer.silent.values))
    message = f"{facts}. No unit is active on {'any input' if quiet >= 1 else f'{percent(quiet)} of the inputs'}."
    return Finding("silent", message, measured, layer.dead.step_at(0))


QUESTION = Question(
    code="S6.1",
    name="dead units",
    asks="Are more hidden units dead than normal, or nearly all of a layer from step 0?",
    why="A unit that is inactive on every example has no gradient and never recovers. A few are normal; a layer in "
    "which nearly all units are dead from the start is switched off, and training continues without it.",
    needs=("dead_units/*", "silent_inputs/*"),
    panel=6,
    thresholds=(
        Threshold(
            name="share",
            value=0.5,
            unit="of a layer's units",
            meaning="a larger fraction of dead units at the end is noted",
            seed="5 to 10% is normal",
            decision="healthy tutor runs have none; small healthy ReLU networks have 11 to 42% on one batch",
            of="share",
        ),
        Threshold(
            name="usual",
            value=0.1,
            unit="of a layer's units",
            meaning="the fraction that messages call normal",
            seed="5 to 10%",
            decision="a rule of thumb; it does not decide",
        ),
        Threshold(
            name="all",
            value=0.99,
            unit="of a layer's units",
            meaning="a layer with more dead units may be switched off",
            seed="nearly all neurons dead from step 0",
            decision="only if no unit at all is active on as many inputs: a sparse layer (top-k, an autoencoder with "
            "few active features) has dead units by this count, but some active units for every input",
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
            meaning="how long the layer must be dead",
            seed="from step 0",
            decision="any warmup is over",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="the number of dead units is normal"),
        Outcome(
            name="dead",
            answer=NOTE,
            meaning="most units of a layer are dead at the end",
            fix="No action is needed while the loss falls; otherwise lower the learning rate and initialise the "
            "biases at 0.",
        ),
        Outcome(
            name="sparse",
            answer=NOTE,
            meaning="all units of a layer look dead from the start, perhaps by design",
            fix="No action is needed if this is the design; otherwise check the biases before the activation.",
        ),
        Outcome(
            name="silent",
            answer=FAULT,
            meaning="a layer is switched off from the start and stays so",
            fix="Check the biases and the scale before the activation: a ReLU with strongly negative biases never "
            "opens. Initialise biases at 0 and weights by Kaiming's rule.",
            may_pass=True,
            explains=("P3.5", "P6.1"),
        ),
    ),
    find=find,
)
