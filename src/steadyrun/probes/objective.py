"""In a sampled step: what the loss is made of, which parameters it reaches, how targets align with inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from steadyrun.probes.companions import CompanionProbe
from steadyrun.probes.fit import FitProbe
from steadyrun.probes.forward_sample import by_names
from steadyrun.probes.gradient_reach import Reach
from steadyrun.probes.loss_graph import Constants, LossGraph, read
from steadyrun.probes.noising import NAMES as MIXED
from steadyrun.probes.noising import mixing
from steadyrun.probes.optimizer_steps import OptimizerLike
from steadyrun.probes.row_queue import ProbeRow
from steadyrun.probes.soft_targets import NAMES, compared_with
from steadyrun.probes.targets import (
    alignment,
    alike,
    class_counts,
    contrasts,
    ends,
    entropy,
    padding_supervised,
    supervised,
)

_LOOKS = 5  # samples in which a graph is looked at closely; those of an attempt's start, with the default cadence
_RARELY = 8  # and every so many samples after them: an equal graph stays what it is
_MOST_TABLES = 8  # embeddings with one row for each example that are followed
_MOST_GRAPHS = 100  # that are remembered; a graph that always changes is looked at always


@dataclass
class _BackwardRoots:
    """What the backward passes of one step began from."""

    graphs: list[LossGraph] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return bool(self.graphs) and all(graph.complete for graph in self.graphs)

    @property
    def reached(self) -> set[int]:
        return {id(leaf) for graph in self.graphs for leaf in graph.leaves}

    @property
    def sides(self) -> int:
        """How many losses there are that train different parts; micro-batches train the same."""
        return len({frozenset(id(leaf) for leaf in graph.leaves) for graph in self.graphs})


class ObjectiveProbe:
    """Reads the graph of the loss when backward begins."""

    def __init__(
        self,
        model: nn.Module,
        optimizers: Callable[[], list[OptimizerLike]],
        learned: Callable[..., None],
        tokens: dict[str, int],
        companions: CompanionProbe,
    ) -> None:
        self._learned, self._tokens = learned, tokens
        self._reach = Reach(model, optimizers)
        self._names = {id(each): name for name, each in model.named_parameters()}
        self.sample = False
        self._backward = _BackwardRoots()
        self._facts: dict[str, object] = {}
        self._samples = 0
        self._known: dict[int, Constants] = {}  # by the signature of a graph
        self._contrastive: dict[int, bool] = {}
        self._looks: Counter[int] = Counter()  # by signature, and by what the gradient reached
        self._reached: dict[str, object] = {}
        self._fit = FitProbe()
        self._outputs: Sequence[Tensor] = ()
        self._inputs: Sequence[Tensor] = ()
        self.companions = companions

    def backward_begins(self, root: Tensor | None, outputs: Sequence[Tensor], inputs: Sequence[Tensor] = ()) -> None:
        self._outputs, self._inputs = list(outputs), list(inputs)
        if self.sample and root is not None and root.requires_grad:
            self._backward.graphs.append(read(root, outputs, {} if self._is_rare else self._known))

    @property
    def _is_rare(self) -> bool:
        return self._samples % _RARELY == 0

    def forget(self) -> None:
        self._backward = _BackwardRoots()

    def fill(self, row: ProbeRow, order: list[int]) -> None:
        """Put the numbers of a step into its row, and everything else into the manifest; `order` is who ran when."""
        backward, self._backward = self._backward, _BackwardRoots()
        outputs, self._outputs = self._outputs, ()
        inputs, self._inputs = self._inputs, ()
        beside = self.companions.take()
        if not backward.graphs:
            return
        self._put_divergence(row, backward.graphs, outputs)
        with torch.no_grad():
            for graph in backward.graphs[:1]:
                self._put_targets(row, graph)
                _put_mixing(row, graph, inputs)
                self._put_lookups(row, graph)
        facts = _made_of(backward.graphs)
        if beside:
            facts["companions"] = beside
        contrastive = [self._contrasts(graph) for graph in backward.graphs]
        if any(contrastive):
            facts["contrastive"] = True
        if backward.complete:
            facts["sides"] = backward.sides
            reached = backward.reached
            if self._is_rare or self._looks_again(
                hash(frozenset(reached))
            ):  # it takes milliseconds, and what a loss reaches stays
                self._reached = self._reach.facts(reached, order)
            self._samples += 1
            facts |= self._reached
        news = facts != {key: value for key, value in self._facts.items() if key != "samples"}
        if news or self._samples & (self._samples - 1) == 0:
            self._facts = facts | {"samples": self._samples}
            self._learned(objective=self._facts)

    def _put_divergence(self, row: ProbeRow, graphs: list[LossGraph], outputs: Sequence[Tensor]) -> None:
        """The temperatures of student and teacher, and whether the targets are what the teacher says."""
        pair = next((graph.divergence for graph in graphs if graph.divergence is not None), None)
        taught = None if pair is None else compared_with(*pair, outputs, self.companions.outputs)
        if taught is not None:
            row.put_many(taught, by_names([f"taught/{name}" for name in NAMES]))
        weight = next((graph.divergence_weight[0] for graph in graphs if graph.divergence_weight), None)
        if taught is not None:
            row.put("taught/weight", weight)

    def _put_lookups(self, row: ProbeRow, graph: LossGraph) -> None:
        """How far the ids of a batch spread over a table with one row for each example, such as one of times."""
        for table, ids in graph.lookups[:_MOST_TABLES]:
            name = self._names.get(id(table))
            if name is not None and len(table) > 1:
                row.put(f"lookup_spread/{name}", (ids.max() - ids.min()).float())

    def _looks_again(self, key: int) -> bool:
        """Whether what has this key was looked at less often than it should be; counts this time."""
        if len(self._looks) > _MOST_GRAPHS:
            self._looks, self._known, self._contrastive = Counter(), {}, {}
        self._looks[key] += 1
        return self._looks[key] <= _LOOKS

    def _contrasts(self, graph: LossGraph) -> bool:
        """Whether the targets of a graph say who is who; remembers the constants of one that was looked at enough."""
        if graph.looked:
            self._contrastive[graph.signature] = bool(graph.labels) and contrasts(graph.labels[0])
            if not self._looks_again(graph.signature):
                self._known[graph.signature] = graph.constants
        return self._contrastive.get(graph.signature, False)

    def _put_targets(self, row: ProbeRow, graph: LossGraph) -> None:
        for name, pair in (self._fit.measure(graph.compared) | self._fit.classes(graph.labels)).items():
            row.put_many(pair, by_names([f"fit/{name}", f"fit_guess/{name}"]))
        for name, value in self._fit.details.items():
            row.put(name, value)
        shares = alignment(graph)
        if shares is not None:
            row.put_many(shares, by_names(["targets/same", "targets/next", "targets/second"]))
        if not graph.labels:
            return
        labels = graph.labels[0]
        row.put("targets/supervised", supervised(labels))
        row.put("targets/peak", labels.peak)
        row.put("targets/itself", labels.itself)
        row.put("targets/place", labels.place)
        pad, eos = self._tokens.get("pad_id"), self._tokens.get("eos_id")
        padded = [padding_supervised(labels, tokens, pad) for tokens in graph.tokens] if pad is not None else []
        known = [share for share in padded if share is not None]
        if known:  # of several tables (segments also have ids) the least
            row.put("targets/padding", torch.stack(known).amin())
        if eos is not None and graph.tokens:
            row.put_many(ends(labels, graph.tokens[0], eos), by_names(["targets/ends_given", "targets/ends_asked"]))
        counts = class_counts(labels)
        if counts is not None:
            overall = self._fit.counts["classes"]
            mixing = torch.stack([alike(counts), alike(overall), counts.sum(), entropy(overall)])
            names = ["targets/alike", "targets/alike_overall", "targets/count", "targets/entropy"]
            row.put_many(mixing, by_names(names))


def _put_mixing(row: ProbeRow, graph: LossGraph, inputs: Sequence[Tensor]) -> None:
    """What a denoising model is given: how noise and data are mixed, and whether its times differ."""
    squared = next((each.targets for each in graph.compared if each.kind == "squared"), None)
    noisy = next((each for each in inputs if squared is not None and each.shape == squared.shape), None)
    if squared is None or noisy is None:
        return
    times = next((each for each in inputs if each is not noisy and each.numel() == len(squared)), None)
    mixed = mixing(noisy, squared, times)
    if mixed is not None:
        row.put_many(mixed, by_names(list(MIXED)))
    if times is not None:
        row.put("noised/times", (times.max() - times.min()).float())


def _made_of(graphs: list[LossGraph]) -> dict[str, object]:
    """Facts that are not numbers: squashed scores, broadcast predictions, label smoothing."""
    facts: dict[str, object] = {}
    for graph in graphs:
        if graph.squashed:
            facts["squashed"] = graph.squashed
        if graph.probabilities:
            facts["probabilities"] = True
        if graph.wrong_axis is not None:
            facts["wrong_axis"] = list(graph.wrong_axis)
        if graph.advantages:
            facts["advantages"] = True
        if graph.compared:
            facts.setdefault("compares", graph.compared[0].kind)
        if graph.broadcast is not None:
            facts["broadcast"] = [list(graph.broadcast.predictions), list(graph.broadcast.compared)]
        for labels in graph.labels[:1]:
            facts.setdefault("classes", labels.classes)
            facts.setdefault("reduction", labels.reduction)
            if labels.smoothing:
                facts["smoothing"] = round(labels.smoothing, 6)
    return facts
