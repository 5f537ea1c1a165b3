"""Spectral norms agree with the exact singular values, from the first sample on and while matrices move."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from steadyrun.probes.parameters import SpectralProbe, large_matrices


@settings(max_examples=25)
@given(
    rows=st.integers(16, 400), columns=st.integers(16, 400), seed=st.integers(0, 1000), rank=st.sampled_from([None, 3])
)
def test_against_svdvals(rows: int, columns: int, seed: int, rank: int | None) -> None:
    source = torch.Generator().manual_seed(seed)
    matrix = torch.randn(rows, columns, generator=source)
    if rank is not None:
        matrix = torch.randn(rows, rank, generator=source) @ torch.randn(rank, columns, generator=source)
    probe = SpectralProbe([("matrix", matrix)])
    for _ in range(6):
        exact = float(torch.linalg.svdvals(matrix)[0])
        assert float(probe.measure()[0]) == pytest.approx(exact, rel=0.01)
        matrix += 0.05 * torch.randn(rows, columns, generator=source)


def test_while_a_model_trains() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    matrices = large_matrices([(name, p) for name, p in model.named_parameters()])
    probe = SpectralProbe(matrices)
    target = torch.randn(64, 64)
    for step in range(200):
        x = torch.randn(32, 64)
        torch.nn.functional.mse_loss(model(x), x @ target).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            exact = [float(torch.linalg.svdvals(p.detach())[0]) for _, p in matrices]
            assert probe.measure().tolist() == pytest.approx(exact, rel=0.01)


def test_non_finite_matrices_are_nan_and_recover() -> None:
    matrix = torch.randn(64, 48)
    probe = SpectralProbe([("matrix", matrix)])
    for poison in (float("nan"), float("inf")):
        matrix[3, 4] = poison
        assert np.isnan(float(probe.measure()[0]))
        matrix[3, 4] = 0.0
        assert float(probe.measure()[0]) == pytest.approx(float(torch.linalg.svdvals(matrix)[0]), rel=0.01)
    assert float(SpectralProbe([("zero", torch.zeros(64, 48))]).measure()[0]) == 0


def test_what_counts_as_large() -> None:
    named = [
        ("matrix", torch.zeros(64, 64)), ("small", torch.zeros(8, 512)), ("tiny", torch.zeros(20, 20)),
        ("vector", torch.zeros(9999)), ("convolution", torch.zeros(32, 16, 3, 3)),
        ("whole", torch.zeros(64, 64).long()),
    ]  # fmt: skip
    assert [name for name, _ in large_matrices(named)] == ["matrix", "convolution"]
