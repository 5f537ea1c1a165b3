"""Loss functions and optimizers: right ones, and ones with a mistake in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from nonfinite.models import Batch


def scores_and_targets(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Scores in rows, a target for each."""
    scores = model(batch)
    rows = scores.reshape(-1, scores.shape[-1]).float()
    return rows, batch["targets"].repeat_interleave(len(rows) // len(batch["targets"]))


def plain(model: nn.Module, batch: Batch) -> Tensor:
    return functional.cross_entropy(*scores_and_targets(model, batch))


def log_of_softmax(model: nn.Module, batch: Batch) -> Tensor:
    scores, targets = scores_and_targets(model, batch)
    likely = (scores * 1e4).softmax(dim=-1)
    return -torch.log(likely.gather(1, targets[:, None])).mean()


def all_ignored(model: nn.Module, batch: Batch) -> Tensor:
    scores, targets = scores_and_targets(model, batch)
    return functional.cross_entropy(scores, torch.full_like(targets, -100))


def empty_mask(model: nn.Module, batch: Batch) -> Tensor:
    scores, targets = scores_and_targets(model, batch)
    kept = (targets > 1000).float()
    return (functional.cross_entropy(scores, targets, reduction="none") * kept).sum() / kept.sum()


def huge_error(model: nn.Module, batch: Batch) -> Tensor:
    scores, _ = scores_and_targets(model, batch)
    return functional.mse_loss(scores, torch.full_like(scores, 1e25))


def masked_target(model: nn.Module, batch: Batch) -> Tensor:
    scores, targets = scores_and_targets(model, batch)
    return functional.cross_entropy(scores.index_fill(1, targets[:1], float("-inf")), targets)


def entropy_of_masked(model: nn.Module, batch: Batch) -> Tensor:
    scores, _ = scores_and_targets(model, batch)
    masked = scores.masked_fill(scores < scores.mean(), float("-inf"))
    return -(masked.softmax(dim=-1) * masked.log_softmax(dim=-1)).sum(dim=-1).mean()


def root_of_error(model: nn.Module, batch: Batch) -> Tensor:
    scores, _ = scores_and_targets(model, batch)
    return torch.sqrt(functional.mse_loss(scores, scores.detach()))


def gradient_penalty(model: nn.Module, batch: Batch) -> Tensor:
    """The root of a gradient that is zero: the gradient of a gradient."""
    scores, targets = scores_and_targets(model, batch)
    weights = [each for each in model.parameters() if each.requires_grad][-2:]
    gradients = torch.autograd.grad(functional.cross_entropy(scores, targets), weights, create_graph=True)
    off = sum((each * (each > 100)).sum() for each in gradients)
    return functional.cross_entropy(scores, targets) + torch.sqrt(off)


def common_token(model: nn.Module, batch: Batch) -> Tensor:
    """A thousand gradients of 300 for one row of a float16 table."""
    table = model.get_submodule("stages.1.body.plant.table")
    taken = table(torch.zeros(1024, dtype=torch.long, device=batch["targets"].device))
    return plain(model, batch) + (taken.float() * 300).sum()


class Signed(torch.optim.Optimizer):
    """An optimizer of one's own that divides by the size of the gradient."""

    def __init__(self, parameters: Iterable[Any], lr: float = 1e-3) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, _: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad / parameter.grad.abs(), alpha=group["lr"])
