"""What the targets of a batch show: how they align with the inputs, what is masked, how classes are mixed.

Only sums are taken, on the device where the targets are; whoever records them decides when they move.
"""

from __future__ import annotations

import torch
from torch import Tensor

from steadyrun.probes.loss_graph import Labels, LossGraph

_SHORTEST = 4
_FEWEST_PICKED = 2  # positions
_MOST_CLASSES = 100_000
OFFSETS = (0, 1, 2)  # a target is the token itself, the next one, the one after that


def alignment(graph: LossGraph) -> Tensor | None:
    """The fraction of supervised targets that equal the input at each of `OFFSETS`; None if none lie side by side.

    Of several losses and several embeddings (an encoder's and a decoder's) the best match counts, offset by offset.
    """
    pairs = [(_shares(labels, tokens)) for labels in graph.labels for tokens in graph.tokens]
    pairs += [_shares_picked(*picked, tokens) for picked in graph.picked for tokens in graph.tokens]
    known = [shares for shares in pairs if shares is not None]
    return torch.stack(known).amax(0) if known else None


def _shares_picked(ids: Tensor, start: int, tokens: Tensor) -> Tensor | None:
    """The same for log-probabilities that a program picks from the scores at `start` and after."""
    length = min(ids.shape[1], tokens.shape[1] - start - OFFSETS[1])
    if len(ids) != len(tokens) or length < _FEWEST_PICKED:
        return None
    shares = []
    for offset in OFFSETS:
        there = tokens[:, start + offset : start + offset + length]
        shares.append((ids[:, : there.shape[1]] == there).float().mean())
    return torch.stack(shares)


def _shares(labels: Labels, tokens: Tensor) -> Tensor | None:
    """A program may cut the last position off its scores and the first off its labels, or shift before."""
    targets = per_row(labels.targets, *tokens.shape)
    if targets is None or tokens.shape[1] < _SHORTEST:
        return None
    keep = targets != labels.ignore_index
    shares = []
    for offset in OFFSETS:
        length = min(targets.shape[1], tokens.shape[1] - offset)
        mask = keep[:, :length]
        same = (targets[:, :length] == tokens[:, offset : offset + length]) & mask
        shares.append(same.sum() / mask.sum().clamp(min=1))
    return torch.stack([share.float() for share in shares])


def supervised(labels: Labels) -> Tensor:
    """The fraction of targets that count."""
    return (labels.targets != labels.ignore_index).float().mean()


def padding_supervised(labels: Labels, tokens: Tensor, pad_id: int) -> Tensor | None:
    """Of the supervised positions, the fraction at which padding is asked to predict padding."""
    rows, width = tokens.shape
    targets = per_row(labels.targets, rows, width)
    if targets is None:
        return None
    inputs = tokens[:, : targets.shape[1]]
    keep = targets != labels.ignore_index
    wrong = keep & (targets == pad_id) & (inputs == pad_id)
    return wrong.sum() / keep.sum().clamp(min=1)


def ends(labels: Labels, tokens: Tensor, eos_id: int) -> Tensor:
    """How often the end of a text occurs after the first position of a row, and how often it is a target."""
    return torch.stack([(tokens[:, 1:] == eos_id).sum(), (labels.targets == eos_id).sum()]).float()


def contrasts(labels: Labels) -> bool:
    """Whether the classes are the examples of the batch themselves, and each is to find itself or its partner."""
    targets, count = labels.targets, labels.targets.numel()
    if targets.dim() != 1 or count < 2:
        return False
    if labels.classes == count - 1:  # itself is left out, and the partner comes first
        return not bool(targets.any())
    return labels.classes == count and torch.equal(targets.sort().values, torch.arange(count, device=targets.device))


def padding(tokens: Tensor, pad_id: int, *, ends_text: bool) -> Tensor:
    """Runs of padding at the two ends of rows.

    Where the padding's id also ends or begins a text, the innermost one of a run is the text's own; so it is where
    every row begins with it, which may be the start of a decoder's text.
    """
    is_pad = tokens == pad_id
    leading, trailing = is_pad.long().cumprod(1).bool(), is_pad.flip(1).long().cumprod(1).flip(1).bool()
    inner = torch.nn.functional.pad(leading, (0, 1))[:, 1:]
    leading = leading & (inner | ~leading[:, :1].all())  # the innermost may begin the text; the others are padding
    if ends_text:
        leading = leading & torch.nn.functional.pad(leading, (0, 1))[:, 1:]
        trailing = trailing & torch.nn.functional.pad(trailing, (1, 0))[:, :-1]
    empty = is_pad.all(1, keepdim=True)
    return (leading | trailing) & ~empty


def class_counts(labels: Labels) -> Tensor | None:
    """How often each class is a target; None if targets are not a list of classes, or classes are too many."""
    targets = labels.targets
    if targets.dim() != 1 or targets.shape[0] < 2 or labels.classes > _MOST_CLASSES:
        return None
    keep = (targets != labels.ignore_index) & (targets >= 0) & (targets < labels.classes)
    counts = torch.zeros(labels.classes, device=targets.device)
    return counts.scatter_add_(0, targets.clamp(0, labels.classes - 1), keep.float())


def entropy(counts: Tensor) -> Tensor:
    """The loss of guessing by these frequencies alone, in nats."""
    shares = counts / counts.sum().clamp(min=1)
    return -(shares * shares.clamp(min=1e-30).log()).sum()


def alike(counts: Tensor) -> Tensor:
    """How likely two different targets are of one class.

    It is unbiased: of data that is mixed it is the same on average for one batch and for all batches together, however
    few or uneven the classes are.
    """
    total = counts.sum()
    return (counts * (counts - 1)).sum() / (total * (total - 1)).clamp(min=1)


def per_row(targets: Tensor, rows: int, width: int) -> Tensor | None:
    """Targets as rows beside the tokens, from whatever shape the loss took them in."""
    count = targets.numel()
    for length in (width, width - 1, width - 2):
        if length > 0 and count == rows * length:
            return targets.reshape(rows, length)
    return None
