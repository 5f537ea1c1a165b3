"""S1.1, before training: does a later token change an earlier output?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from steadyrun.preflight.same_cause import probe_of, same
from steadyrun.questions.form import FAULT, NOTE, Finding, Limits, Outcome, Threshold
from steadyrun.questions.signatures.s1_1_too_good import QUESTION as RECORDED
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.text import shown

if TYPE_CHECKING:
    from torch import Tensor

    from steadyrun.preflight.bench import Bench


@dataclass(frozen=True)
class _Leak:
    """The change of outputs before the changed position."""

    changed: int  # the changed position
    first: int  # the earliest output that changed
    far: float
    limit: float


@dataclass(frozen=True)
class _Tried:
    """The effect of changing positions along one dimension of an input."""

    leak: _Leak | None
    mixes: bool  # later outputs change: positions interact along this dimension


def find(bench: Bench, limit: Limits) -> Finding:
    declared = bench.config.get("causal")
    next_ones, like = _sequences(bench, limit)
    if not next_ones and declared is not True:
        raise NotApplicable("the targets are not the next tokens, and the config does not declare causal")
    if not next_ones and not like:
        raise MissingSignal(
            "a sequence",
            "no input of the model has the length of its outputs",
            "let loss_fn(model, batch) call model(…) with tensors of (examples, positions, …)",
        )
    leak = _by_targets(bench, next_ones, limit) if next_ones else _by_shape(bench, like[0], limit)
    if leak is None:
        return Finding("pass", "Changing later positions changes no earlier output.")
    measured = {"moved": leak.far, "position": float(leak.changed)}
    which = "position 1 and all later ones" if leak.changed == 1 else f"position {leak.changed}"
    message = (
        f"Changing {which} changes the output at position {leak.first} by {shown(leak.far)} (limit {shown(leak.limit)})"
    )
    if declared is True:
        return Finding("sees-the-answer", f"{message}, though the config declares causal.", measured)
    if declared is False:
        return Finding("declared-open", f"{message}. The config declares causal False.", measured)
    return Finding("sees-target", f"{message}. The targets are the next tokens.", measured)


def _by_targets(bench: Bench, tokens: list[Tensor], limit: Limits) -> _Leak | None:
    """The leak over all inputs that contain the next tokens; None if one, the decoder's, is causal."""
    leaks = [_tried(bench, sequence, 1, limit).leak for sequence in tokens]
    return None if None in leaks else leaks[0]


def _by_shape(bench: Bench, sequence: Tensor, limit: Limits) -> _Leak | None:
    """The leak of a model declared causal; None if along some dimension only earlier positions have an effect."""
    scores = bench.quiet().scores
    shared = [
        dimension
        for dimension in range(min(sequence.dim(), scores.dim()))
        if sequence.shape[dimension] == scores.shape[dimension] > 1
    ]
    leak = None
    for dimension in sorted(shared, key=lambda dimension: (dimension == 0, dimension)):
        tried = _tried(bench, sequence, dimension, limit)
        if tried.leak is None and tried.mixes:
            return None
        leak = leak or tried.leak
    return leak


def _sequences(bench: Bench, limit: Limits) -> tuple[list[Tensor], list[Tensor]]:
    """Inputs whose next tokens are the targets, and inputs with the shape of the outputs."""
    from steadyrun.preflight.token_positions import input_tensors, next_token_shares

    calls = bench.first_pass().calls
    scores = calls[0].scores if calls else None
    if not calls or scores is None or scores.dim() < 2:
        return [], []
    tensors = [
        tensor for tensor in input_tensors(calls[0]) if tensor.dim() >= 2 and tensor.numel() and tensor.shape[1] > 1
    ]
    next_ones = []
    for tensor in tensors:
        shares = next_token_shares(bench, tensor)
        if shares is not None and float(shares[1]) >= limit["aligned"] and float(shares[0]) < limit["aligned"]:
            next_ones.append(tensor)
    sized = [tensor for tensor in tensors if scores.dim() >= 3 and tensor.shape[0] == scores.shape[0]]
    tokens = [tensor for tensor in sized if not tensor.is_floating_point() and tensor.shape[:2] == scores.shape[:2]]
    moving = [tensor for tensor in sized if tensor.is_floating_point() and tensor.dim() == scores.dim()]
    return next_ones, tokens or moving


def _tried(bench: Bench, sequence: Tensor, dimension: int, limit: Limits) -> _Tried:
    """Change a few positions along a dimension, one at a time, and compare the outputs before and after them."""
    from steadyrun.preflight.input_edits import editing, moved

    quiet = bench.quiet()
    scores, bound = quiet.scores, quiet.limit(limit["moved"])
    keep = _judged(bench, scores, dimension)
    width = int(sequence.shape[dimension])
    worst, mixes = None, False
    for position in sorted({1, width // 2, width - 1}):
        replacement = _changed(sequence, dimension, position, width - position if position == 1 else 1)
        if replacement is None or position >= scores.shape[dimension]:
            continue
        edited = bench.quiet_scores(bench.batch(), editing(partial(_exchange, sequence, replacement)))
        if edited.shape != scores.shape:
            continue
        far = moved(scores, edited).where(keep, 0.0)
        far = far.movedim(dimension, 0).flatten(1).amax(1)
        mixes |= position > 1 and bool((far[position + 1 :] > bound).any())
        if bool((far[:position] > bound).any()) and (worst is None or float(far[:position].max()) > worst.far):
            first = int((far[:position] > bound).nonzero()[0])
            worst = _Leak(position, first, float(far[:position].max()), bound)
    return _Tried(worst, mixes)


def _judged(bench: Bench, scores: Tensor, dimension: int) -> Tensor:
    """A mask of the outputs with a target in the loss; all outputs if that is unknown."""
    import torch

    from steadyrun.preflight.token_positions import supervised

    keep = (
        supervised(bench, int(scores.shape[0]), int(scores.shape[1])) if dimension == 1 and scores.dim() == 3 else None
    )
    return torch.ones_like(scores, dtype=torch.bool) if keep is None else keep[..., None].to(scores.device)


def _exchange(tokens: Tensor, replacement: Tensor, tensor: Tensor) -> Tensor | None:
    import torch

    same = tensor is tokens or (
        tensor.shape == tokens.shape and tensor.dtype == tokens.dtype and torch.equal(tensor, tokens)
    )
    return replacement if same else None


def _changed(tokens: Tensor, dimension: int, position: int, count: int) -> Tensor | None:
    """The input with other values from a position on, taken from elsewhere in it."""
    import torch

    replacement = tokens.detach().clone()
    span = replacement.narrow(dimension, position, count)
    if tokens.is_floating_point():
        span += tokens.std() + span.abs().mean() + 0.1
        return replacement
    known = torch.unique(tokens)
    if known.numel() < 2 or tokens.dtype == torch.bool:
        return None
    indices = torch.searchsorted(known, span.contiguous())
    span.copy_(known[(indices + 1) % known.numel()])
    return replacement


_FIX = (
    "Mask attention to later positions (is_causal=True or a lower triangular mask), pad convolutions on the left, and "
    "remove bidirectional layers."
)
_FOLLOWS = ("C1", "C4", "S", "P6")

QUESTION = probe_of(
    RECORDED,
    asks="Does changing a later token change an earlier output?",
    needs=("loss_fn", "batches", "causal"),
    thresholds=(
        Threshold(
            name="moved",
            value=1e-5,
            unit="fraction of the largest output",
            meaning="a larger change of an earlier output shows a leak",
            seed="",
            decision="causal transformers, GRUs and left-padded convolutions change by exactly 0; in an untrained GPT "
            "without a mask one later token of 512 changes an output by 1e-4, all of them by more",
        ),
        Threshold(
            name="aligned",
            value=0.9,
            unit="fraction of targets",
            meaning="from this fraction on the targets count as the next tokens",
            seed="",
            decision="a shifted text has 1 or just below (without masked targets); other tasks stay far below one half",
        ),
    ),
    outcomes=(
        same(RECORDED, "pass", meaning="no output depends on a later position"),
        same(RECORDED, "sees-the-answer", _FOLLOWS, "outputs depend on later tokens, though causal is declared"),
        Outcome(
            name="sees-target",
            answer=FAULT,
            meaning="an output depends on the token it has to predict",
            fix=_FIX,
            explains=_FOLLOWS,
        ),
        Outcome(
            name="declared-open",
            answer=NOTE,
            meaning="outputs depend on later tokens, as declared",
            fix=_FIX,
        ),
    ),
    find=find,
)
