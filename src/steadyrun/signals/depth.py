"""The residual blocks of a model: which takes the output of which, and which are dead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from steadyrun.signals.curves import Floats
from steadyrun.signals.facts import RANDOM, Facts
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import LimitTable, Points, Signals

# States that last from the first sample to the last: the proof behind several signatures.


_FIRST = 2  # steps: a later sample does not show the start


def from_the_start(points: Points, samples: float, steps: float) -> bool:
    """Whether a sampled series covers the start and is long enough to show a lasting state."""
    return len(points) >= samples and points.steps[0] <= _FIRST and points.steps[-1] - points.steps[0] >= steps


def none_there(run: Signals, probe: str) -> None:
    """Raise `NotApplicable` if a probe found nothing of its kind in the forward pass of this model."""
    for event in run.events("not-recorded"):
        if event.fields.get("probe") == probe:
            raise NotApplicable(f"{probe}: {event.fields.get('why') or 'the model has none'}")


def from_random_weights(run: Signals, part: str, known: Facts) -> bool:
    """Whether a part of the model starts untrained and is entirely trainable.

    If the part has no parameters of its own (an activation), the whole model counts.
    """
    weights = run.listed("initial_weights")
    mine = [entry for entry in weights if _belongs(entry, part)] or weights
    return known.start == RANDOM and bool(mine) and all(entry.get("trainable") is True for entry in mine)


def _belongs(entry: dict[str, Any], part: str) -> bool:
    return str(entry.get("name")).startswith(f"{part}.")


@dataclass(frozen=True)
class Dead:
    """A block with hardly any output, compared with its input and the output of the next block."""

    block: str
    follower: str
    steps: Floats
    own: Floats
    beside: Floats  # the larger of its neighbours' magnitudes
    stays: bool
    certain: bool  # it starts untrained and is trainable

    @property
    def share(self) -> float:
        """Its largest magnitude as a fraction of its neighbours'."""
        return float(np.max(self.own / self.beside))


def magnitudes(run: Signals) -> dict[str, Points]:
    """The activations of the outermost residual blocks by name, in the order of the model."""
    recorded = run.family("activation/*")
    names = [str(entry.get("name")) for entry in run.listed("blocks") if entry.get("role") == "block"]
    outer = [name for name in names if not any(name.startswith(f"{other}.") for other in names)]
    return {name: recorded[name] for name in outer if name in recorded}


def taken_by(run: Signals) -> dict[str, str]:
    """For each block, the block whose output it takes."""
    follows = run.inferred.get("follows")
    return {str(a): str(b) for a, b in follows.items()} if isinstance(follows, dict) else {}


def dead_blocks(run: Signals, limit: LimitTable, known: Facts, *, so_far: bool = False) -> list[Dead]:
    """Blocks with hardly any output in every early sample, although the next block is active.

    With `so_far`, also blocks of a run too young to judge, if their output is tiny relative to their input.

    A branch that starts at zero (a zero-initialised projection, an adapter) adds nothing and blocks nothing: only
    blocks whose output is the whole input of the next block are judged.
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
    # If a block outputs exactly zero, the next block may also output zero in the very first step.
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
    """The input of a block: the output of another block, or of the embedding for the first block."""
    before = taken_by(run).get(block)
    if before in blocks:
        return blocks[before]
    entry = next(
        (str(listed.get("name")) for listed in run.listed("blocks") if listed.get("role") == "embedding"), None
    )
    return run.maybe(f"activation/{entry}") if entry and block == next(iter(blocks)) else None


def _at(steps: Floats, points: Points) -> Floats:
    return np.interp(steps, points.steps, points.values)
