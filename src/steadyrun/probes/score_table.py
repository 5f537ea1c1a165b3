"""Scores of a batch compared with itself: how far the best of a row stands out, and where each row's target lies."""

from __future__ import annotations

import torch
from torch import Tensor

_MOST_ROWS = 1024  # of a batch that is compared with itself
_CLOSE = 0.01


def peak(scores: Tensor) -> Tensor | None:
    """How far the best score of a row is above the row's median; None unless rows are compared with one another."""
    if not _of_a_batch_with_itself(scores):
        return None
    rows = scores.detach().float()
    return (rows.amax(1) - rows.median(1).values).mean()


def _of_a_batch_with_itself(scores: Tensor) -> bool:
    return scores.dim() == 2 and scores.shape[0] - scores.shape[1] in (0, 1)


def place(scores: Tensor, targets: Tensor) -> Tensor | None:
    """The fraction of a row's scores below its target's, with ties as halves; None unless rows are compared."""
    if not _of_a_batch_with_itself(scores) or targets.dim() != 1 or scores.shape[1] < 2:
        return None
    rows = scores.detach().float()
    own = rows.gather(1, targets.clamp(0, scores.shape[1] - 1)[:, None])
    below = (rows < own).float().sum(1) + ((rows == own).float().sum(1) - 1) / 2
    return (below / (scores.shape[1] - 1)).mean()


def itself(scores: Tensor, targets: Tensor) -> Tensor | None:
    """Whether a batch is compared with itself and each example is its own target: then scores are symmetric."""
    if scores.dim() != 2 or scores.shape[0] != scores.shape[1] or scores.shape[0] > _MOST_ROWS or targets.dim() != 1:
        return None
    below = scores.detach().float()
    below = below - below.diagonal()[:, None]
    symmetric = ((below - below.T).abs() <= _CLOSE * (1 + below.abs())).all()
    return (symmetric & (targets == torch.arange(len(targets), device=targets.device)).all()).float()
