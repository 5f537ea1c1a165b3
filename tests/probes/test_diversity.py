"""How much the rows of a batch differ, and generated rows beside real ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import steadyrun
from steadyrun.probes.diversity import Generated, centred, effective_rank, output_rank


def test_the_effective_rank_counts_directions() -> None:
    line = torch.linspace(-1, 1, 20)[:, None] * torch.ones(8)
    assert float(effective_rank(line - line.mean(0))) == pytest.approx(1)
    every = torch.cat([torch.eye(8), -torch.eye(8)])
    assert float(effective_rank(every)) == pytest.approx(8)


def test_few_or_narrow_rows_are_not_measured() -> None:
    assert centred(torch.ones(3, 8)) is None
    assert output_rank(torch.ones(8, 2)) is None


def test_generated_rows_are_compared_with_real_ones() -> None:
    torch.manual_seed(0)
    real, seen = torch.randn(32, 8), Generated()
    made = real / 2
    seen.takes(2, real)
    seen.gives(1, made)
    seen.takes(2, made.detach())
    found = seen.beside_real()
    assert found is not None
    assert found.tolist() == pytest.approx([0.25, 1, float(real.mean()), float(real.std())])


def test_a_part_that_gets_no_real_batch_is_not_compared() -> None:
    seen, code = Generated(), torch.randn(32, 8)
    seen.gives(1, code)
    seen.takes(2, code)
    assert seen.beside_real() is None


def test_its_own_output_is_not_a_generated_batch() -> None:
    seen, state = Generated(), torch.randn(32, 8)
    seen.takes(1, torch.randn(32, 8))
    seen.gives(1, state)
    seen.takes(1, state)
    assert seen.beside_real() is None


def test_rows_generated_without_gradients_are_not_real() -> None:
    seen, made, real = Generated(), torch.zeros(32, 8), torch.randn(32, 8)
    seen.gives_unseen(3, torch.ones(32, 8))  # an inner layer
    seen.gives_unseen(1, made)
    seen.takes(2, made)
    seen.takes(2, real)
    found = seen.beside_real()
    assert found is not None
    assert float(found[0]) == 0


@pytest.mark.parametrize("quiet", [False, True])
def test_a_run_records_generated_beside_real_rows(tmp_path: Path, quiet: bool) -> None:
    torch.manual_seed(0)
    parts = nn.ModuleDict({"G": nn.Linear(4, 8), "D": nn.Linear(8, 1)})
    with steadyrun.record(tmp_path / "run") as run:
        run.watch(parts, torch.optim.SGD(parts.parameters(), 1e-3), capture=False, monitor=False)
        for _ in range(3):
            with torch.set_grad_enabled(not quiet):
                fake = parts["G"](torch.randn(16, 4))
            loss = parts["D"](fake.detach()).mean() - parts["D"](torch.randn(16, 8)).mean()
            loss.backward()
            run.step(loss)
    values = steadyrun.open_run(tmp_path / "run").series("generated/variance").values
    assert len(values) == 3
    assert all(0.05 < value < 2 for value in values)
