"""The digest of tensors: exact, equal for equal bits, other for other bits or another order."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from steadyrun.probes import tensor_digests
from steadyrun.probes.tensor_digests import digest, joined_digest

DTYPES = [
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool, torch.complex64,
]  # fmt: skip


def of(*tensors: Tensor | None) -> int:
    return int(digest(tensors).item())


def content(seed: int, size: int, dtype: torch.dtype) -> Tensor:
    """A tensor of random bits; NaN, infinity and subnormal numbers occur."""
    source = np.random.default_rng(seed)
    if dtype is torch.bool:
        return torch.from_numpy(source.integers(0, 2, size).astype(bool))
    width = torch.empty(0, dtype=dtype).element_size()
    raw = torch.from_numpy(source.integers(0, 256, size * width, dtype=np.uint8))
    return raw.view(dtype) if size else torch.empty(0, dtype=dtype)


def slow_twin(tensors: list[Tensor]) -> int:
    """The same number, word by word in Python's integers."""
    words: list[int] = []
    size = 0
    drawn = tensor_digests._weights(len(tensors))
    for tensor, weight in zip(tensors, drawn, strict=True):
        raw = tensor.contiguous().view(torch.uint8).numpy().tobytes()
        raw += bytes(-len(raw) % 4)
        words += np.frombuffer(raw, dtype=np.int32).tolist()
        size += (1 + len(raw)) * weight
    width = tensor_digests._WIDTH
    each = tensor_digests.weights(0, width, np.empty(0)).tolist()
    turns = tensor_digests.weights(1, tensor_digests._ROWS, np.empty(0)).tolist()
    total = size + sum(word * each[index % width] * turns[index // width] for index, word in enumerate(words))
    total = (total + 2**63) % 2**64 - 2**63
    return (total ^ (total >> 29)) & (2**52 - 1)


@given(st.integers(0, 2**32), st.lists(st.integers(0, 70), min_size=1, max_size=4), st.sampled_from(DTYPES))
@settings(deadline=None)
def test_it_equals_a_slow_twin(seed: int, sizes: list[int], dtype: torch.dtype) -> None:
    tensors = [content(seed + index, size, dtype) for index, size in enumerate(sizes)]
    with mock.patch.object(tensor_digests, "_WIDTH", 16):  # so that slices and their seams are met
        assert of(*tensors) == slow_twin(tensors)
        with mock.patch.object(tensor_digests, "_ROWS_ON_CPU", 3):  # as on an accelerator
            assert of(*tensors) == slow_twin(tensors)


@given(st.integers(0, 2**32), st.integers(1, 200), st.sampled_from(DTYPES), st.data())
@settings(deadline=None)
def test_one_flipped_bit_changes_it(seed: int, size: int, dtype: torch.dtype, data: st.DataObject) -> None:
    tensor = content(seed, size, dtype)
    bytes_of = tensor.clone().view(torch.uint8)
    byte = data.draw(st.integers(0, bytes_of.numel() - 1))
    bit = 0 if dtype is torch.bool else data.draw(st.integers(0, 7))
    bytes_of[byte] ^= 1 << bit
    assert of(tensor) != of(bytes_of.view(dtype))


@given(st.integers(0, 2**32), st.integers(2, 200), st.sampled_from(DTYPES), st.data())
@settings(deadline=None)
def test_two_swapped_elements_change_it(seed: int, size: int, dtype: torch.dtype, data: st.DataObject) -> None:
    tensor = content(seed, size, dtype)
    first, second = data.draw(st.lists(st.integers(0, size - 1), min_size=2, max_size=2, unique=True))
    swapped = tensor.clone()
    swapped[first], swapped[second] = tensor[second], tensor[first]
    same = bool((tensor[first].view(1).view(torch.uint8) == tensor[second].view(1).view(torch.uint8)).all())
    assert (of(tensor) == of(swapped)) == same


@given(st.integers(0, 2**32), st.sampled_from(DTYPES), st.integers(1, 3))
@settings(deadline=None)
def test_strides_do_not_matter(seed: int, dtype: torch.dtype, offset: int) -> None:
    square = content(seed, 30, dtype).view(5, 6)
    stored_otherwise = square.T.contiguous().T
    spaced = torch.stack([square, square], dim=-1)[..., 0]
    shifted = torch.cat([square.flatten()[:offset], square.flatten()])[offset:].view(5, 6)
    assert not stored_otherwise.is_contiguous()
    assert of(square) == of(stored_otherwise) == of(spaced) == of(shifted)


def test_sizes_and_missing_tensors_count() -> None:
    nothing, zero = torch.empty(0), torch.zeros(1)
    assert of(nothing) == of(torch.from_numpy(np.empty(0, dtype=np.float32)))  # numpy's has a stride of 0
    digests = [of(), of(nothing), of(None, nothing), of(zero), of(zero, zero), of(torch.zeros(2))]
    assert len(set(digests)) == len(digests)
    assert of(None, None) == of()  # all are missing


def test_zeros_of_both_signs_and_kinds_of_nan_differ() -> None:
    assert of(torch.tensor([0.0])) != of(torch.tensor([-0.0]))
    quiet = torch.tensor([0x7FC00000], dtype=torch.int32).view(torch.float32)
    other = torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert of(quiet) == of(quiet.clone()) != of(other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_large_tensors_are_position_sensitive_across_slices(dtype: torch.dtype) -> None:
    width = tensor_digests._WIDTH
    zeros = torch.zeros(3 * width + 5, dtype=dtype)
    seen = set()
    for position in (0, 1, width - 1, width, width + 1, 2 * width, 3 * width, 3 * width + 4):
        marked = zeros.clone()
        marked[position] = 1
        seen.add(of(marked))
    assert len(seen | {of(zeros)}) == 9
    pieces = torch.split(zeros + 1, [7, width, 2 * width - 2])
    assert of(*pieces) != of(*reversed(pieces))


def test_it_is_exact_as_a_float() -> None:
    for seed in range(200):
        value = of(content(seed, 50, torch.float32))
        assert 0 <= value < 2**52
        assert int(float(value)) == value


def test_two_sign_changes_do_not_cancel() -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        tensor = torch.arange(1, 9).to(dtype)
        changed = tensor.clone()
        changed[2], changed[5] = -changed[2], -changed[5]
        assert of(tensor) != of(changed)
        opposite = torch.tensor([1.5, -1.5], dtype=dtype)
        assert of(opposite) != of(-opposite)


def test_sparse_gradients_have_a_digest() -> None:
    table = torch.nn.Embedding(10, 3, sparse=True)
    table(torch.tensor([1, 4, 1])).sum().backward()
    first = of(table.weight.grad)
    table.weight.grad = None
    table(torch.tensor([4, 1, 1])).sum().backward()
    assert first == of(table.weight.grad)
    table(torch.tensor([1])).sum().backward()
    assert first != of(table.weight.grad)


def test_digests_are_joined_in_order() -> None:
    assert joined_digest([1, 2, 3]) != joined_digest([1, 3, 2])


def test_a_parameter_and_its_history_are_left_alone() -> None:
    parameter = torch.nn.Parameter(torch.randn(4, 4))
    made = (parameter * 2).requires_grad_()
    before, version = torch.get_rng_state(), parameter._version
    of(parameter, made)
    assert parameter._version == version
    assert parameter.grad is None
    assert torch.equal(before, torch.get_rng_state())
