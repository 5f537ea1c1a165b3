"""What `watch` writes down of a model: quick for large tensors, and right."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from steadyrun.probes import description


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_statistics_of_a_large_tensor_against_all_of_its_elements(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(description, "_MEASURED", 2**16)
    torch.manual_seed(0)
    layer = nn.Linear(1100, 301, bias=False).to(dtype)
    with torch.no_grad():
        layer.weight.normal_(0.5, 0.02)
        layer.weight[7, 3] = 9.0  # not among the elements that are looked at
    (weight,) = description.describe_weights(layer)
    exact = layer.weight.detach().double()
    assert weight["mean"] == pytest.approx(float(exact.mean()), rel=1e-2)
    assert weight["std"] == pytest.approx(0.02, rel=2e-2)
    assert weight["max"] == 9.0
    assert weight["min"] == pytest.approx(float(exact.min()))


def test_a_small_tensor_is_measured_whole_and_an_odd_type_as_well() -> None:
    layer = nn.Linear(7, 5)
    for weight, parameter in zip(description.describe_weights(layer), layer.parameters(), strict=True):
        assert weight["std"] == pytest.approx(float(parameter.detach().std(correction=0)), rel=1e-6)
    layer.weight = nn.Parameter(torch.zeros(5, 7, dtype=torch.float8_e4m3fn), requires_grad=False)
    assert description.describe_weights(layer)[0]["max"] == 0.0
