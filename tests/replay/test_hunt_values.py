"""Finiteness and ranges for every kind of tensor, against the obvious way."""

import math

import pytest
import torch

from steadyrun.replay.hunt import finite_range
from steadyrun.replay.hunt.finite_range import Bad, bad_values, measure, tensors_in

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e5m2]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("values", "bad"),
    [
        ([1.0, 0.0], Bad.NONE),
        ([1.0, math.nan], Bad.NAN),
        ([math.inf, 1.0], Bad.UP),
        ([-math.inf, 1.0], Bad.DOWN),
        ([-math.inf, math.nan, math.inf], Bad.NAN | Bad.INF),
    ],
)
def test_floats_of_every_size(dtype: torch.dtype, values: list[float], bad: Bad) -> None:
    assert bad_values(torch.tensor(values).to(dtype)) == bad


def test_the_largest_float16_is_finite() -> None:
    assert not bad_values(torch.tensor([65504.0], dtype=torch.float16))


@pytest.mark.filterwarnings("ignore:Sparse")
def test_other_layouts() -> None:
    sick = torch.tensor([[0.0, math.nan], [0.0, 1.0]])
    assert bad_values(sick.to_sparse()) == Bad.NAN
    assert bad_values(sick.to_sparse_csr()) == Bad.NAN
    assert bad_values(torch.complex(torch.ones(2), torch.full((2,), math.inf))) == Bad.UP


def test_what_cannot_be_looked_at_is_finite() -> None:
    for value in (torch.ones(2, dtype=torch.long), torch.empty(0), torch.empty(3, device="meta"), None, "text"):
        assert not bad_values(value)


def test_a_range_is_over_finite_values() -> None:
    span = measure("x", torch.tensor([0.0, -2.0, math.inf, 5.0]))
    assert (span.low, span.high, span.nonfinite, span.zeros) == (-2.0, 5.0, 0.25, 0.25)
    assert measure("x", torch.tensor([math.nan])).low is None
    assert measure("x", torch.empty(0, 3)).empty
    assert measure("n", torch.tensor([3, 0])).zeros == 0.5
    assert measure("x", 0.0).zeros == 1.0


def test_a_huge_tensor_is_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finite_range, "_MOST_ELEMENTS", 10)
    tensor = torch.arange(64.0).reshape(16, 4)
    tensor[15, 3] = -math.inf
    assert bad_values(tensor) == Bad.DOWN
    assert measure("x", tensor) == finite_range.Range("x", "float32", (16, 4), 0.0, 62.0, 1 / 64, 1 / 64)


def test_names_in_a_batch() -> None:
    x = torch.ones(1)
    assert [name for name, _ in tensors_in({"a": x, "b": [x, {"c": x}]})] == ["a", "b.0", "b.1.c"]
    assert [name for name, _ in tensors_in(x)] == [""]
