"""The residual blocks of a model, one after the other: who takes whose output, and which of them is dead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from steadyrun.signals.curves import Floats
from steadyrun.signals.facts import RANDOM, Facts
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import LimitTable, Points, Signals

# What has been so from the first sample to the last: the proof that several signatures rest on.


_FIRST = 2  # steps: a sample later than this does not show the start


def from_the_start(points: Points, samples: float, steps: float) -> bool:
    """Whether a sampled series shows the start, and enough of what came after it to speak of a state."""
    return len(points) >= samples and points.steps[0] <= _FIRST and points.steps[-1] - points.steps[0] >= steps


def none_there(run: Signals, probe: str) -> None:
    """Raise where a probe looked at the forward pass and found nothing of its kind in this model."""
    for event in run.events("not-recorded"):
        if event.fields.get("probe") == probe:
            raise NotApplicable(f"{probe}: {event.fields.get('why') or 'none were found in this model'}")


def from_random_weights(run: Signals, part: str, known: Facts) -> bool:
    """Whether a part of the model starts untrained and all of it is trained.

    Where no parameter bears its name (an activation's module), the whole model counts.
    """
    weights = run.listed("initial_weights")
    mine = [entry for entry in weights if _belongs(entry, part)] or weights
    return known.start == RANDOM and bool(mine) and all(entry.get("trainable") is True for entry in mine)


def _belongs(entry: dict[str, Any], part: str) -> bool:
    return str(entry.get("name")).startswith(f"{part}.")


@dataclass(frozen=True)
class Dead:
    """A block whose output is next to nothing, beside what goes into it and what its follower makes."""

    block: str
    follower: str
    steps: Floats
    own: Floats
    beside: Floats  # the larger of its neighbours' magnitudes
    stays: bool
    certain: bool  # untrained at the start, and trained

    @property
    def share(self) -> float:
        """Its largest share of its neighbours."""
        return float(np.max(self.own / self.beside))


def magnitudes(run: Signals) -> dict[str, Points]:
    """The activations of residual blocks by their names, in the order of the model; no part of another block."""
    recorded = run.family("activation/*")
    names = [str(entry.get("name")) for entry in run.listed("blocks") if entry.get("role") == "block"]
    outer = [name for name in names if not any(name.startswith(f"{other}.") for other in names)]
    return {name: recorded[name] for name in outer if name in recorded}


def taken_by(run: Signals) -> dict[str, str]:
    """For each block the block whose output it takes."""
    follows = run.inferred.get("follows")
    return {str(a): str(b) for a, b in follows.items()} if isinstance(follows, dict) else {}


def dead_blocks(run: Signals, limit: LimitTable, known: Facts, *, so_far: bool = False) -> list[Dead]:
    """Blocks next to nothing in every sample of the first steps, while the block that takes their output lives.

    With `so_far`, also those of a run that is too young to tell, which give next to nothing of what they take.

    A branch that starts at zero (a zero-initialised projection, an adapter) adds nothing and stops nothing: only a
    block whose output is all that the next one gets is looked at.
    """
    blocks, takes = magnitudes(run), taken_by(run)
    pairs = [(name, before) for name, before in takes.items() if {name, before} <= set(blocks)]
    candidates = [_dead(run, name, before, blocks, limit, known, so_far=so_far) for name, before in pairs]
    return [candidate for candidate in candidates if candidate is not None]


def _dead(
    run: Signals, follower: str, block: str, blocks: dict[str, Points], limit: LimitTable, known: Facts, *, so_far: bool
) -> Dead | None:
    own, given, taken = blocks[block], blocks[follower], _entering(run, block, blocks)
    lasting = from_the_start(own, limit["samples"], limit["steps"])
    if taken is None or not (lasting or (so_far and from_the_start(own, 1, 0))):
        return None
    after, before = _at(own.steps, given), _at(own.steps, taken)
    # Where nothing at all comes out, the follower may have nothing either, in the very first step.
    dead = np.where(after > 0, own.values < limit["share"] * after, (own.values == 0) & (before > 0))
    beside = np.maximum(after, before)
    early = own.steps <= own.steps[0] + limit["steps"]
    if not lasting and not np.all(own.values < limit["share"] * before):
        return None
    enough = int(np.sum(early)) >= limit["samples"] or so_far
    if not enough or not np.all(dead[early]) or not np.any(after[early] > 0):
        return None
    stays = bool(np.all(own.values <= limit["later"] * beside))
    return Dead(block, follower, own.steps, own.values, beside, stays, from_random_weights(run, block, known))


def _entering(run: Signals, block: str, blocks: dict[str, Points]) -> Points | None:
    """What goes into a block: the output of another, or for the first what enters the stack."""
    before = taken_by(run).get(block)
    if before in blocks:
        return blocks[before]
    entry = next(
        (str(listed.get("name")) for listed in run.listed("blocks") if listed.get("role") == "embedding"), None
    )
    return run.maybe(f"activation/{entry}") if entry and block == next(iter(blocks)) else None


def _at(steps: Floats, points: Points) -> Floats:
    return np.interp(steps, points.steps, points.values)
