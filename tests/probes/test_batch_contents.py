"""What batches and the model's inputs hold, against slow and obvious twins."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import steadyrun
from steadyrun.probes.batch_hashes import arrays_of, example_sums, inputs_and_targets, nonfinite_values
from steadyrun.probes.model_inputs import pooled, statistics
from steadyrun.probes.padding import padding_of


def train(
    folder: Path, batches: list[tuple[Tensor, Tensor]], validation: Tensor | None = None, model: nn.Module | None = None
) -> Any:
    """Record one step for each batch, and one validation after the last."""
    model = model or nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with steadyrun.record(folder) as run:
        run.watch(model, optimizer, monitor=False, capture=False)
        for x, y in batches:
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss, batch=(x, y))
        if validation is not None:
            with torch.no_grad():
                model(validation)
            run.val(1.0)
    return steadyrun.open_run(folder)


def values(run: Any, name: str) -> list[float]:
    return [float(value) for value in run.series(name).values]


def batches(count: int, seed: int = 0) -> list[tuple[Tensor, Tensor]]:
    draw = torch.Generator().manual_seed(seed)
    return [(3 + 2 * torch.randn(8, 4, generator=draw), torch.randint(3, (8,), generator=draw)) for _ in range(count)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_the_fraction_of_values_that_are_not_finite(dtype: torch.dtype) -> None:
    x = torch.full((10, 4), 6e4, dtype=dtype)  # whose sum is beyond the range of float16
    y = torch.zeros(10, dtype=torch.int64)
    assert nonfinite_values(arrays_of((x, y))) == 0.0
    x[0, 0], x[1, 1], x[2, 2] = math.nan, math.inf, -math.inf
    assert nonfinite_values(arrays_of((x, y))) == 3 / 40
    assert nonfinite_values(arrays_of((x, x[:, 0], y))) == 4 / 50
    assert nonfinite_values(arrays_of(y)) is None


def test_statistics_of_the_inputs_in_training_and_validation(tmp_path: Path) -> None:
    given, validation = batches(3), 5 + torch.randn(6, 4)
    run = train(tmp_path, given, validation)
    assert values(run, "inputs/mean") == pytest.approx([float(x.mean()) for x, _ in given], rel=1e-5)
    assert values(run, "inputs/std") == pytest.approx([float(x.std(correction=0)) for x, _ in given], rel=1e-5)
    assert values(run, "inputs/nonfinite") == [0.0] * 3
    assert values(run, "val_inputs/mean") == pytest.approx([float(validation.mean())], rel=1e-5)
    assert values(run, "val_inputs/std") == pytest.approx([float(validation.std(correction=0))], rel=1e-5)


def test_what_is_not_finite_is_left_out_of_mean_and_deviation() -> None:
    x = torch.tensor([[1.0, 3.0, math.nan, math.inf]])
    measured = statistics((x,))
    assert measured is not None
    assert measured.tolist() == [2.0, 1.0, 0.5]
    assert statistics((torch.arange(3),)) is None
    assert statistics((torch.arange(3), x)) is None, "behind tokens it is a hidden state or a mask"


def test_several_passes_together_are_as_one() -> None:
    x = torch.randn(8, 5)
    passes = [given for part in (x[:4], x[4:]) if (given := statistics(part)) is not None]
    assert pooled(passes)["mean"] == pytest.approx(float(x.mean()), abs=1e-6)
    assert pooled(passes)["std"] == pytest.approx(float(x.std(correction=0)), rel=1e-5)


def test_passes_of_a_training_step_are_no_validation(tmp_path: Path) -> None:
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with steadyrun.record(tmp_path) as run:
        run.watch(model, optimizer, monitor=False, capture=False)
        for x, y in batches(3):
            with torch.no_grad():
                model(1000 * x)  # a teacher
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            run.step(1.0, batch=(x, y))
        run.val(1.0)
    assert "val_inputs/mean" not in steadyrun.open_run(tmp_path).names()


def test_targets_are_followed_by_their_inputs(tmp_path: Path) -> None:
    given = batches(3)
    again = [given[0], (given[1][0], (given[1][1] + 1) % 3), (given[2][0], given[0][1])]
    run = train(tmp_path, given + again)
    assert values(run, "inputs_again") == [0, 0, 0, 8, 8, 8]
    changed = [0, 0, 0, 0, 8, int((given[2][1] != given[0][1]).sum())]
    assert values(run, "targets_changed") == changed
    hashes = values(run, "target_hash")
    assert hashes[0] == hashes[3] == hashes[5]
    assert len({*hashes[:3], hashes[4]}) == 4


def test_the_target_is_the_classes_wherever_they_stand() -> None:
    x, y = np.random.default_rng(0).normal(size=(6, 5)), np.arange(6) % 3
    one, other = inputs_and_targets(example_sums([x, y])), inputs_and_targets(example_sums([x, (y + 1) % 3]))
    assert one is not None
    assert other is not None
    assert np.array_equal(one[0], other[0])
    assert np.all(one[1] != other[1])
    swapped = inputs_and_targets(example_sums([y, x])), inputs_and_targets(example_sums([(y + 1) % 3, x]))
    assert all(pair is not None for pair in swapped)
    assert np.array_equal(swapped[0][0], swapped[1][0])  # type: ignore[index]
    assert inputs_and_targets(example_sums([x])) is None


def test_tensors_of_an_accelerator_say_what_arrays_say() -> None:
    from steadyrun.probes.hash_samples import TargetMemory
    from steadyrun.probes.row_queue import ProbeRow

    x, y = torch.randn(6, 5), torch.arange(6) % 3
    x[0, 0] = math.nan
    rows = []
    for arrays in ([x.numpy(), y.numpy()], [x, y], [x.numpy(), y]):  # as `arrays_of` gives them on each device
        memory, row = TargetMemory(), ProbeRow("steps", 0, 0.0)
        for labels in (arrays[1], (arrays[1] + 1) % 3):
            pair = inputs_and_targets(example_sums([arrays[0], labels]))
            assert pair is not None
            memory.look(*pair, row)
        fraction = nonfinite_values(arrays)
        assert fraction is not None
        rows.append({**row.values, "inputs": pair[0].tolist(), "nonfinite": pytest.approx(float(fraction))})
    assert rows[0] == rows[1] == rows[2]
    assert rows[0]["targets_changed"] == 6


def test_padding_is_what_stands_at_the_end() -> None:
    ids = torch.tensor([[5, 0, 6, 0, 0, 0], [1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 0, 0]])
    padding = padding_of((ids,), 0)
    assert padding is not None
    assert padding.mask.int().tolist() == [[0, 0, 0, 0, 1, 1], [0] * 6, [0] * 6]  # the first may be the end of the text
    x = torch.ones(2, 4, 3)
    x[0, 2:], x[1, 1] = 0, 0
    series = padding_of(x, None)
    assert series is not None
    assert series.mask.int().tolist() == [[0, 0, 1, 1], [0, 0, 0, 0]]
    assert padding_of((ids, ids), 0) is None
    assert padding_of((ids,), None) is None


class PerPosition(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x)


@pytest.mark.parametrize("masked", [False, True])
def test_padding_with_a_gradient_is_counted(tmp_path: Path, masked: bool) -> None:
    model, x = PerPosition(), torch.randn(2, 10, 4)
    x[0, 4:] = 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with steadyrun.record(tmp_path) as run:
        run.watch(model, optimizer, monitor=False, capture=False)
        losses = model(x).square().mean(-1) + model.head.bias.sum()
        keep = (x != 0).any(-1) if masked else torch.ones(2, 10)
        loss = (losses * keep).sum() / keep.sum()
        loss.backward()
        optimizer.step()
        run.step(loss)
    recorded = values(steadyrun.open_run(tmp_path), "padding_counted")
    assert recorded == [0.0 if masked else pytest.approx(6 / 20)]
