"""How well predictions fit their targets, and how well a guess that ignores the inputs: term by term of a loss."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from steadyrun.probes.comparisons import Compared
from steadyrun.probes.loss_graph import Labels
from steadyrun.probes.output_bounds import out_of_reach
from steadyrun.probes.targets import class_counts, entropy

_MOST = 4  # terms of one kind in a loss that are followed

_LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "squared": functional.mse_loss,
    "absolute": functional.l1_loss,
    "binary": lambda chances, targets: functional.binary_cross_entropy(chances.clamp(0, 1), targets.clamp(0, 1)),
    "logits": functional.binary_cross_entropy_with_logits,
}


class FitProbe:
    """Measures predictions against the mean of all targets that were sampled so far."""

    def __init__(self) -> None:
        self._means: dict[str, tuple[Tensor, int]] = {}
        self.counts: dict[str, Tensor] = {}  # of all classes seen so far, by cross-entropy
        self.details: dict[str, Tensor] = {}  # more about the comparisons of the last sample, by series

    def measure(self, found: list[Compared]) -> dict[str, Tensor]:
        """By comparison: its loss, and that of the best constant so far."""
        fits: dict[str, Tensor] = {}
        self.details = {}
        for one in found[:_MOST]:
            number = 1 + sum(name.partition("#")[0] == one.kind for name in fits)
            name = one.kind if number == 1 else f"{one.kind}#{number}"
            targets, loss = one.targets.float(), _LOSSES[one.kind]
            constant = self._constant(name, targets).expand_as(targets)
            guess = _LOSSES["binary" if one.kind == "logits" else one.kind](constant, targets)
            # What is to be zero everywhere is a residual, not a target: it has no guess to beat.
            is_target = torch.where(targets.any(), 1.0, torch.nan)
            fits[name] = torch.stack([loss(one.predictions.float(), targets), guess]) * is_target
            self.details[f"fit_target/{name}"] = targets.mean()
            if one.bounds is not None:
                share = out_of_reach(targets, one.bounds, one.kind, loss, guess)
                self.details[f"fit_out_of_reach/{name}"] = share
            if one.positive_weight is not None:
                positive, negative = (one.positive_weight * targets).sum(), (1 - targets).sum()
                self.details[f"fit_odds/{name}"] = positive / negative.clamp(min=1)
            self._put_weight(name, one.weight)
        return fits

    def classes(self, found: list[Labels]) -> dict[str, Tensor]:
        """By cross-entropy: its loss, and that of guessing by the class frequencies so far."""
        fits = {}
        for number, labels in enumerate(found[:_MOST], start=1):
            counts = class_counts(labels)
            if counts is None or labels.loss is None:
                continue
            name = "classes" if number == 1 else f"classes#{number}"
            known = self.counts.get(name)
            self.counts[name] = counts if known is None or known.shape != counts.shape else known + counts
            fits[name] = torch.stack([labels.loss, entropy(self.counts[name])])
            self._put_weight(name, labels.weight)
        return fits

    def _put_weight(self, name: str, weight: list[Tensor]) -> None:
        if weight:
            self.details[f"fit_weight/{name}"], self.details[f"fit_against/{name}"] = weight

    def _constant(self, name: str, targets: Tensor) -> Tensor:
        """The mean target at each position; one for all positions if examples change their shape."""
        mean, seen = self._means.get(name, (targets.mean(0), 0))
        batch = targets.mean(0) if mean.shape == targets.shape[1:] else targets.mean()
        mean = mean if mean.shape == batch.shape else mean.mean()
        count = targets.shape[0]
        mean = mean + (batch - mean) * (count / (seen + count))
        self._means[name] = (mean, seen + count)
        return mean
