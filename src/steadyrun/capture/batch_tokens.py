"""What tokens were in a batch, and which of them the run had hardly seen before."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from steadyrun.program.packing import Packed

_RARE = 10  # seen less often than this before
_CHANCE = 1e-3  # of a token so crowded in any batch like this, if it came as often as before
_TOGETHER = 64  # steps
_MOST_ROWS, _MOST_TOKENS, _MOST_LOSSES = 64, 40, 65_536


class TokenCounts:
    """How often each token came up to now. Counted for many steps at a time, on the device without waiting for it."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.size = vocabulary(tokenizer)
        self._counts: dict[torch.device, Tensor] = {}
        self._waiting: list[Packed] = []

    def add(self, batch: Packed) -> None:
        """Count the tokens of a step's batch; they must not change any more."""
        if self.size:
            self._waiting.append(batch)
            if len(self._waiting) >= _TOGETHER:
                self._count()

    def before(self) -> list[int]:
        """A copy of the counts; this waits for the device."""
        self._count()
        total = sum((counts.cpu() for counts in self._counts.values()), torch.zeros(self.size + 1, dtype=torch.int64))
        return total[: self.size].tolist()

    def _count(self) -> None:
        found = [_first_tokens(batch) for batch in self._waiting]
        waiting, self._waiting = [tokens.detach() for tokens in found if tokens is not None], []
        for device in {tokens.device for tokens in waiting}:
            flat = torch.cat([tokens.reshape(-1).long() for tokens in waiting if tokens.device == device])
            flat = torch.where((flat < 0) | (flat > self.size), self.size, flat)  # anything else: the last index
            counts = self._counts.setdefault(device, torch.zeros(self.size + 1, dtype=torch.int64, device=device))
            if device.type == "cpu":
                counts += torch.bincount(flat, minlength=self.size + 1)  # on a device it would wait for the largest
            else:
                counts.scatter_add_(0, flat, torch.ones_like(flat))


def _first_tokens(batch: Packed) -> Tensor | None:
    """What `tokens_in` finds, without a tensor for every array of a batch that is kept."""
    if (arrays := batch.arrays) is None:
        return tokens_in(batch.tensors)
    found = next((a for a in arrays if a.ndim >= 2 and a.dtype.itemsize > 1 and a.dtype.kind in "iu"), None)
    return None if found is None else torch.from_numpy(found)


def vocabulary(tokenizer: Any) -> int:
    """How many tokens there are, 0 where the tokenizer does not say."""
    for name in ("get_vocab_size", "__len__"):
        count = getattr(tokenizer, name, None)
        if callable(count):
            return int(count())
    size = getattr(tokenizer, "vocab_size", None) or getattr(tokenizer, "n_vocab", 0)
    return int(size) if isinstance(size, int) else 0


def tokens_in(tensors: dict[str, Tensor] | list[Tensor]) -> Tensor | None:
    """The first matrix of integers: `run.step` also counts these as tokens."""
    for tensor in tensors.values() if isinstance(tensors, dict) else tensors:
        if tensor.dim() >= 2 and tensor.element_size() > 1 and not tensor.is_floating_point():
            return tensor
    return None


def describe(batch: Packed, counts: TokenCounts, totals: list[int], own: int) -> dict[str, Any]:
    """The batch as text, and its rare and crowded tokens. `totals` counts its own tokens `own` times already."""
    tokens = tokens_in(batch.tensors)
    if tokens is None:
        return {}
    rows = tokens.reshape(-1, tokens.shape[-1])
    here = torch.bincount(rows.reshape(-1).long().clamp(0, counts.size), minlength=counts.size + 1)[: counts.size]
    before = [max(0, total - own * int(now)) for total, now in zip(totals, here.tolist(), strict=True)]
    return {
        "text": [_text(counts.tokenizer, row) for row in rows[:_MOST_ROWS].tolist()],
        "unusual_tokens": unusual(here.tolist(), before, counts.tokenizer),
    }


def unusual(here: list[int], before: list[int], tokenizer: Any) -> list[dict[str, Any]]:
    """Tokens of this batch that were rare before, or are crowded in it; the least likely first."""
    total_here, total_before = max(1, sum(here)), sum(before)
    distinct = sum(count > 0 for count in here)
    rows: list[dict[str, Any]] = []
    for token, count in enumerate(here):
        if not count or not total_before:
            continue
        expected = before[token] * total_here / total_before
        if before[token] < _RARE or poisson_tail(count, expected) < _CHANCE / distinct:
            rows.append(
                {
                    "token": token,
                    "text": _text(tokenizer, [token]),
                    "in_batch": count,
                    "before": before[token],
                    "expected": expected,
                }
            )
    rows.sort(key=lambda row: (poisson_tail(row["in_batch"], row["expected"]), row["expected"], -row["in_batch"]))
    return rows[:_MOST_TOKENS]


def poisson_tail(count: int, expected: float) -> float:
    """The chance of at least `count` where `expected` come on average."""
    if expected <= 0:
        return 0.0 if count else 1.0
    below = sum(math.exp(k * math.log(expected) - expected - math.lgamma(k + 1)) for k in range(count))
    return max(0.0, 1.0 - below)


def losses_of(packed: Packed | None) -> list[float] | None:
    """Losses token by token, in the order of the batch."""
    if packed is None or not packed.tensors:
        return None
    flat = torch.cat([tensor.reshape(-1).float() for tensor in packed.tensors.values()])
    return flat[:_MOST_LOSSES].tolist()


def _text(tokenizer: Any, ids: list[int]) -> str:
    known = [token for token in ids if token >= 0]
    if hasattr(tokenizer, "id_to_token"):  # `tokenizers`: decoding drops special tokens and joins without a trace
        return " ".join(str(tokenizer.id_to_token(token)) for token in known)
    try:
        return str(tokenizer.decode(known))
    except Exception as problem:  # a user's tokenizer may refuse any of its own ids
        return f"({len(known)} tokens that cannot be decoded: {type(problem).__name__})"
