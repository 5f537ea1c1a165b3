"""An exact digest of tensors: equal bits have equal digests on every device, other bits or another order others.

The bits of all tensors, one after the other, are read as 32-bit integers. Each is multiplied by an odd 64-bit weight of
its own and the products are added modulo 2**64, so the order of summation does not matter: one changed bit always
changes the sum. It is folded to 52 bits, which a float64 holds exactly. Large tensors are gone through in slices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from steadyrun.probes.batch_hashes import fold, weights

_WIDTH = 2**16  # words that are multiplied by weights of their own
_ROWS = 2**16  # sums of so many words that are multiplied by weights of their own: 16 GiB of bits
_WORD = 4  # bytes
_ROWS_ON_CPU, _ROWS_ELSEWHERE = 1, 64  # at once: what stays in a cache, and what keeps a device busy
_SIZES = 2  # which weights belong to the sizes of tensors, after those of words and rows


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this process holds, without its gradient's history."""
    own: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return own.detach()


@torch.no_grad()
def digest(tensors: Sequence[Tensor | None]) -> Tensor:
    """The digest of all tensors together, on their device; None for a tensor that is missing."""
    known = [None if tensor is None else _plain(local(tensor)) for tensor in tensors]
    parts = [part for each in known for part in each or []]
    sums = [_weighted_sum([part for part in parts if part.device == device]) for device in _devices(parts)]
    size = _wrapped(sum(_size(each) * weight for each, weight in zip(known, _weights(len(known)), strict=True)))
    total = sums[0] if sums else torch.zeros((), dtype=torch.int64)
    for index, other in enumerate(sums[1:], start=1):
        total = total + other.to(total.device) * (2 * index + 1)
    folded: Tensor = fold(total + size)
    return folded


def joined_digest(digests: Sequence[int]) -> int:
    """One digest of several, in their order."""
    total = sum(each * weight for each, weight in zip(digests, _weights(len(digests)), strict=True))
    return int(fold(_wrapped(total)))


def _plain(tensor: Tensor) -> list[Tensor]:
    """The bytes of a tensor in the order of its elements, filled up to whole words."""
    if tensor.is_sparse:
        tensor = tensor.coalesce()
        return [*_plain(tensor.indices()), *_plain(tensor.values())]
    if not tensor.numel():
        return []
    content = tensor.reshape(-1).contiguous().view(torch.uint8)
    missing = -content.numel() % _WORD
    return [torch.nn.functional.pad(content, (0, missing))] if missing else [content]


def _size(content: list[Tensor] | None) -> int:
    """The number of bytes and one: an empty tensor differs from none, and zeros differ from fewer zeros."""
    return 0 if content is None else 1 + sum(part.numel() for part in content)


def _devices(parts: list[Tensor]) -> list[torch.device]:
    """Accelerators first: the result is there, and no copy to the host is waited for."""
    return sorted({part.device for part in parts}, key=lambda device: (device.type == "cpu", device.type, device.index))


def _weighted_sum(parts: list[Tensor]) -> Tensor:
    device = parts[0].device
    at_once = _ROWS_ON_CPU if device.type == "cpu" else _ROWS_ELSEWHERE
    room = torch.empty(at_once * _WIDTH, dtype=torch.int64, device=device)
    sums = torch.cat([_row_sums(_words(pieces), room) for pieces in _slices(parts, at_once * _WIDTH * _WORD)])
    turns = weights(1, _ROWS, sums)
    while sums.numel() > _ROWS:
        whole = torch.nn.functional.pad(sums, (0, -sums.numel() % _ROWS)).view(-1, _ROWS)
        sums = (whole * turns).sum(1)
    total: Tensor = (sums * turns[: sums.numel()]).sum()
    return total


def _slices(parts: list[Tensor], size: int) -> Iterator[list[Tensor]]:
    """The bytes of all parts, cut into slices of `size`; a slice may hold pieces of several parts."""
    pieces, left = [], size
    for part in parts:
        start = 0
        while start < part.numel():
            pieces.append(part[start : start + left])
            start, left = start + pieces[-1].numel(), left - pieces[-1].numel()
            if not left:
                yield pieces
                pieces, left = [], size
    if pieces:
        yield pieces


def _words(pieces: list[Tensor]) -> Tensor:
    alone = len(pieces) == 1 and pieces[0].storage_offset() % _WORD == 0
    return (pieces[0] if alone else torch.cat(pieces)).view(torch.int32)


def _row_sums(words: Tensor, room: Tensor) -> Tensor:
    """The weighted sum of each row of words; the last row may be shorter."""
    each = weights(0, _WIDTH, words)
    rows, rest = divmod(words.numel(), _WIDTH)
    whole = words[: rows * _WIDTH].view(rows, _WIDTH)
    sums = [torch.mul(whole, each, out=room[: rows * _WIDTH].view(rows, _WIDTH)).sum(1)] if rows else []
    if rest:
        sums.append(torch.mul(words[rows * _WIDTH :], each[:rest], out=room[:rest]).sum().reshape(1))
    return torch.cat(sums)


def _weights(count: int) -> list[int]:
    drawn: list[int] = weights(_SIZES, max(64, 1 << (count - 1).bit_length() if count else 0), _HOST)[:count].tolist()
    return drawn


_HOST = np.empty(0)


def _wrapped(number: int) -> int:
    """A whole number modulo 2**64, as a signed 64-bit integer."""
    return (number + 2**63) % 2**64 - 2**63
