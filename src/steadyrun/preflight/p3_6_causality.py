"""P3.6: does a later token move an earlier output?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from steadyrun.questions.form import (
    FAULT,
    NOTE,
    PASS,
    Finding,
    Limits,
    NotApplicable,
    Outcome,
    Question,
    Threshold,
    shown,
)
from steadyrun.signals.run import MissingSignal

if TYPE_CHECKING:
    from torch import Tensor

    from steadyrun.preflight.bench import Bench


@dataclass(frozen=True)
class _Leak:
    """How far outputs before the changed position moved."""

    changed: int  # the position that was changed
    first: int  # the earliest output that moved
    far: float
    limit: float


def find(bench: Bench, limit: Limits) -> Finding:
    declared = bench.config.get("causal")
    sequences = _sequences(bench, limit, declared is True)
    if not sequences:
        if declared is True:
            raise MissingSignal(
                "a sequence",
                "no input of the model has the length of its outputs",
                "let loss_fn(model, batch) call model(…) with tensors of (examples, positions, …)",
            )
        raise NotApplicable("targets are not the next tokens, and config does not declare causal")
    found = [_leak(bench, each, limit) for each in sequences]
    worst = max((each for each in found if each is not None), key=lambda each: each.far, default=None)
    if worst is None or (declared is not True and None in found):  # of several inputs one is the decoder's
        return Finding("pass", f"later positions move no earlier output ({len(_positions(sequences[0]))} tried).")
    measured = {"moved": worst.far, "position": float(worst.changed)}
    message = (
        f"changing position {worst.changed} moves the output at position {worst.first} by {shown(worst.far)} "
        f"(limit {shown(worst.limit)})"
    )
    if declared is True:
        return Finding("not-causal", f"config declares causal, but {message}.", measured)
    if declared is False:
        return Finding("declared-open", f"{message}; config declares causal False.", measured)
    return Finding("sees-target", f"targets are the next tokens, and {message}.", measured)


def _sequences(bench: Bench, limit: Limits, declared: bool) -> list[Tensor]:
    """The inputs whose later positions must not matter."""
    from steadyrun.preflight.tokens import given, next_token_shares

    calls = bench.first_pass().calls
    scores = calls[0].scores if calls else None
    if not calls or scores is None or scores.dim() < 2:
        return []
    tensors = [each for each in given(calls[0]) if each.dim() >= 2 and each.numel() and each.shape[1] > 1]
    next_ones = []
    for each in tensors:
        shares = next_token_shares(bench, each)
        if shares is not None and float(shares[1]) >= limit["aligned"] and float(shares[0]) < limit["aligned"]:
            next_ones.append(each)
    if next_ones:
        return next_ones
    if not declared or scores.dim() < 3:
        return []
    like = [each for each in tensors if each.shape[:2] == scores.shape[:2]]
    whole = [each for each in like if not each.is_floating_point() and each.dim() == 2]
    return (whole or [each for each in like if each.is_floating_point() and each.dim() >= 3])[:1]


def _positions(tokens: Tensor) -> list[int]:
    width = int(tokens.shape[1])
    return sorted({1, width // 2, width - 1})


def _leak(bench: Bench, tokens: Tensor, limit: Limits) -> _Leak | None:
    """The furthest movement of an output before a changed position; None where none moves."""
    import torch

    from steadyrun.preflight.editing import editing, moved
    from steadyrun.preflight.tokens import supervised

    quiet = bench.quiet()
    scores, bound = quiet.scores, quiet.limit(limit["moved"])
    rows, width = (int(size) for size in scores.shape[:2])
    keep = supervised(bench, rows, width)
    worst = None
    for position in _positions(tokens):
        other = _changed(tokens, position)
        if other is None or position > width:
            continue
        edited = bench.quiet_scores(bench.batch(), editing(lambda held, other=other: _exchange(held, tokens, other)))
        if edited.shape != scores.shape:
            continue
        far = moved(scores, edited).flatten(2).amax(2) if scores.dim() > 2 else moved(scores, edited)
        far = far[:, :position]
        if keep is not None:
            far = torch.where(keep[:, :position].to(far.device), far, 0.0)
        if float(far.max()) > bound and (worst is None or float(far.max()) > worst.far):
            first = int((far.amax(0) > bound).nonzero()[0])
            worst = _Leak(position, first, float(far.max()), bound)
    return worst


def _exchange(held: Tensor, tokens: Tensor, other: Tensor) -> Tensor | None:
    import torch

    same = held is tokens or (held.shape == tokens.shape and held.dtype == tokens.dtype and torch.equal(held, tokens))
    return other if same else None


def _changed(tokens: Tensor, position: int) -> Tensor | None:
    """The same with other values at one position: those of other examples, or values that occur elsewhere."""
    import torch

    other = tokens.detach().clone()
    if tokens.is_floating_point():
        other[:, position] = other[:, position] + tokens.std() + tokens[:, position].abs().mean() + 0.1
        return other
    known = torch.unique(tokens)
    if known.numel() < 2:
        return None
    places = torch.searchsorted(known, tokens[:, position].contiguous())
    other[:, position] = known[(places + 1) % known.numel()]
    return other


_FIX = "Mask attention to later positions (is_causal=True, a lower triangular mask), pad convolutions on the left, and use no bidirectional layer."
_FOLLOWS = ("C1", "C4", "S", "P6")

QUESTION = Question(
    code="P3.6",
    name="causality",
    asks="Does changing a later token move an earlier output?",
    why="A model that predicts the next token and can see it learns to copy it: training and validation loss fall "
    "together to almost nothing, and generation is noise.",
    needs=("loss_fn", "batches", "causal"),
    panel=None,
    thresholds=(
        Threshold(
            "moved",
            1e-5,
            "of the largest output",
            "an earlier output that moves by more has seen the change",
            "",
            "nothing moves at all in causal transformers, GRUs and left-padded convolutions (measured 0); a leak "
            "through one attention layer with fresh weights moves outputs by 1e-3 and more",
        ),
        Threshold(
            "aligned",
            0.9,
            "share of targets",
            "from this share on targets are the next tokens",
            "",
            "a shifted text has 1 or just below (masked targets do not count); other tasks stay far below one half",
        ),
    ),
    outcomes=(
        Outcome("pass", PASS, "no output sees a later position"),
        Outcome(
            "not-causal", FAULT, "an output sees later positions, against what is declared", _FIX, explains=_FOLLOWS
        ),
        Outcome("sees-target", FAULT, "an output sees the token it has to predict", _FIX, explains=_FOLLOWS),
        Outcome("declared-open", NOTE, "outputs see later positions, as declared; targets are the next tokens", _FIX),
    ),
    find=find,
)
