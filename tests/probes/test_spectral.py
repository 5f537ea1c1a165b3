"""Spectral norms agree with the exact singular values, from the first sample on and while matrices move."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from steadyrun.probes import spectral_norms
from steadyrun.probes.cadence import EARLY, Cadence
from steadyrun.probes.row_queue import ProbeRow
from steadyrun.probes.spectral_norms import SpectralProbe, large_matrices
from steadyrun.tutor.model import MiniGPT, ModelConfig, init_weights


def _measured(probe: SpectralProbe, parts: list[int] | None = None) -> list[float]:
    row = ProbeRow("samples", 0, 0.0)
    probe.fill(row, list(range(probe.parts)) if parts is None else parts)
    return [row.values[name] for name in row.values if name.startswith("spectral_norm/")]


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
    for sample in range(6):
        exact = float(torch.linalg.svdvals(matrix)[0])
        # Of 6,000 random matrices the worst was 2.6% off at first, without a vector yet, and 1.7% off later.
        assert _measured(probe)[0] == pytest.approx(exact, rel=0.025 if sample else 0.04)
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
            assert _measured(probe) == pytest.approx(exact, rel=0.01)


def test_non_finite_matrices_are_nan_and_recover() -> None:
    matrix = torch.randn(64, 48)
    probe = SpectralProbe([("matrix", matrix)])
    for poison in (float("nan"), float("inf")):
        matrix[3, 4] = poison
        assert np.isnan(_measured(probe)[0])
        matrix[3, 4] = 0.0
        assert _measured(probe)[0] == pytest.approx(float(torch.linalg.svdvals(matrix)[0]), rel=0.01)
    assert _measured(SpectralProbe([("zero", torch.zeros(64, 48))]))[0] == 0


def test_what_counts_as_large() -> None:
    named = [
        ("matrix", torch.zeros(64, 64)), ("small", torch.zeros(8, 512)), ("tiny", torch.zeros(20, 20)),
        ("vector", torch.zeros(9999)), ("convolution", torch.zeros(32, 16, 3, 3)),
        ("whole", torch.zeros(64, 64).long()),
    ]  # fmt: skip
    assert [name for name, _ in large_matrices(named)] == ["matrix", "convolution"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_slow_twin_agrees_within_a_percent_while_a_transformer_trains(dtype: torch.dtype) -> None:
    """The slow twin takes all singular values of every matrix at every sample; early samples are as in training."""
    torch.manual_seed(0)
    model = MiniGPT(ModelConfig(256, 32, 3, 64, 4)).to(dtype)
    init_weights(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    matrices = large_matrices(list(model.named_parameters()))
    probe = SpectralProbe(matrices)
    order = [name for part in probe._parts for stack in part for name in stack.names]
    assert len(order) > len(probe._parts[0]), "matrices of one shape are stacked"
    for step in range(161):
        tokens = torch.randint(0, 256, (8, 33))
        logits = model(tokens[:, :-1]).float()
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step in EARLY or step % 40 == 0:
            exact = {name: float(torch.linalg.svdvals(p.detach().float().flatten(1))[0]) for name, p in matrices}
            assert _measured(probe) == pytest.approx([exact[name] for name in order], rel=0.01)


def test_a_large_model_is_measured_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spectral_norms, "_AT_ONCE", 9_000)
    source = torch.Generator().manual_seed(0)
    named = [(f"m{n}", torch.randn(64, 64, generator=source)) for n in range(6)]
    named.append(("table", torch.randn(400, 64, generator=source)))
    named.append(("half", torch.randn(400, 64, generator=source).bfloat16()))
    probe = SpectralProbe(named)
    assert probe.parts == 5
    cadence = Cadence({"spectral": 100}, first_step=0)
    seen: list[str] = []
    for step in range(100, 200):
        row = ProbeRow("samples", step, 0.0)
        probe.fill(row, cadence.parts("spectral", step, probe.parts))
        assert len(row.values) <= 2
        seen += row.values
        for name, value in row.values.items():
            matrix = dict(named)[name.removeprefix("spectral_norm/")].float()
            assert value == pytest.approx(float(torch.linalg.svdvals(matrix)[0]), rel=0.02)
    assert sorted(seen) == sorted(f"spectral_norm/{name}" for name, _ in named), "each once in a hundred steps"
    assert cadence.parts("spectral", 2, probe.parts) == [0, 1, 2, 3, 4], "early, all of them"
    assert Cadence({"spectral": 0}).parts("spectral", 0, 5) == []


def test_another_vector_becomes_the_most_stretched_between_two_samples() -> None:
    """The kept vector has no part of the new one: only what is added to it leads there."""
    generator = torch.Generator().manual_seed(0)
    left, _, right = torch.linalg.svd(torch.randn(96, 64, generator=generator), full_matrices=False)
    spectrum = torch.linspace(1.0, 0.1, 64)
    matrix = torch.nn.Parameter(left @ torch.diag(spectrum) @ right)
    probe = SpectralProbe([("w", matrix)])
    for _ in range(4):
        probe.fill(ProbeRow("samples", 0, 0.0), [0])
    spectrum[40] = 1.3
    matrix.data = left @ torch.diag(spectrum) @ right
    row = ProbeRow("samples", 1, 0.0)
    probe.fill(row, [0])
    assert row.values["spectral_norm/w"] == pytest.approx(1.3, rel=0.01)
