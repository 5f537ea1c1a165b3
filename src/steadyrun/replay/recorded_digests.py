"""Compare the parameters of a replay with the digests that each rank recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from steadyrun.probes.description import named_parameters
from steadyrun.probes.tensor_digests import digest
from steadyrun.program.model_parts import find_blocks, groups_of
from steadyrun.replay.incident import Incident

_SERIES = "parameter_digest"


@dataclass(frozen=True)
class DigestDifference:
    """The first step after which a rank's recorded parameters are not those of the replay, and in which blocks."""

    step: int
    rank: int
    blocks: tuple[str, ...]
    compared: int  # blocks with a digest at this step


class RecordedDigests:
    """Shown the model after every step; only steps with a recorded digest are looked at."""

    def __init__(self, model: nn.Module, parts: Sequence[Incident]) -> None:
        self.differences: dict[int, DigestDifference] = {}  # by rank, the first of each
        self._blocks = _by_block(model)
        self._recorded = {part.rank: _recorded(part, self._blocks) for part in parts}

    def compare(self, step: int) -> None:
        sampled = {rank: series[step] for rank, series in self._recorded.items() if step in series}
        if not sampled:
            return
        own = {block: float(digest(members).item()) for block, members in self._blocks.items()}
        for rank, digests in sampled.items():
            wrong = tuple(block for block, value in digests.items() if own[block] != value)
            if wrong and rank not in self.differences:
                self.differences[rank] = DigestDifference(step, rank, wrong, len(digests))

    @property
    def first(self) -> DigestDifference | None:
        """The first difference of all ranks, of equals the one in the fewest blocks."""
        return min(self.differences.values(), key=lambda found: (found.step, len(found.blocks)), default=None)


def _by_block(model: nn.Module) -> dict[str, list[Tensor]]:
    named = named_parameters(model)
    blocks: dict[str, list[Tensor]] = {}
    for (_, parameter), block in zip(named, groups_of([name for name, _ in named], find_blocks(model)), strict=True):
        blocks.setdefault(block, []).append(parameter)
    return blocks


def _recorded(part: Incident, blocks: dict[str, list[Tensor]]) -> dict[int, dict[str, float]]:
    """The digests of the blocks by step; a column is named parameter_digest/CLASS/BLOCK."""
    by_step: dict[int, dict[str, float]] = {}
    for name in part.names():
        series, _, rest = name.partition("/")
        block = rest.partition("/")[2]
        if series == _SERIES and block in blocks:
            for step, value in part.recorded(name).items():
                by_step.setdefault(step, {})[block] = value
    return by_step
