"""Targets as rows beside the tokens, whichever way a program lays out its texts."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from steadyrun.probes.loss_graph import Labels, LossGraph
from steadyrun.probes.targets import per_row


@dataclass(frozen=True)
class Pair:
    """Rows of ids that were looked up, the targets beside them, and the label that does not count."""

    tokens: Tensor
    targets: Tensor
    ignored: int

    @property
    def keep(self) -> Tensor:
        return self.targets != self.ignored

    @property
    def graph(self) -> LossGraph:
        """The pair alone, for what reads a graph."""
        labels = Labels(self.targets, 0, self.ignored, "mean")
        return LossGraph(labels=[labels], tokens=[self.tokens])


def pairs(graph: LossGraph) -> list[Pair]:
    """Every loss beside every embedding that fits it: texts as rows, as columns, or as columns in one of the two."""
    aligned = []
    for labels in graph.labels:
        for tokens in graph.tokens:
            for ids, targets in _laid_out(labels, tokens):
                if ids.shape[1] > 1:
                    aligned.append(Pair(ids, targets, labels.ignore_index))
    return aligned


def _laid_out(labels: Labels, tokens: Tensor) -> list[tuple[Tensor, Tensor]]:
    turned = tokens.t()
    rows, mixed = per_row(labels.targets, *tokens.shape), per_row(labels.targets, *turned.shape)
    columns = labels.targets.reshape(tokens.shape).t() if labels.targets.numel() == tokens.numel() else None
    beside = [(tokens, rows), (turned, mixed), (turned, columns)]
    return [(ids, targets) for ids, targets in beside if targets is not None]
