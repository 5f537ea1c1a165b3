"""Which examples of a batch are to blame, by their row, and by index and file if the batch has them."""

import json
import math
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import incident_programs as programs
import pytest
import torch
from incident_programs import Loop
from torch import Tensor, nn

import steadyrun
from steadyrun.replay.bad_examples import alone, in_words, not_finite
from steadyrun.replay.hunt.culprit import Example

Named = namedtuple("Named", ["images", "image_idx", "file_name"])


def with_nan(rows: list[int], size: int = 6) -> Tensor:
    tensor = torch.zeros(size, 2, 3)
    tensor[rows, 1, 1] = math.nan
    return tensor


X = with_nan([2, 4])
FILES = [f"{index}.png" for index in range(6)]


@pytest.mark.parametrize(
    ("batch", "entry", "parts", "expected"),
    [
        (X, "batch", 1, [Example(2), Example(4)]),
        ([X, torch.zeros(6)], "0", 1, [Example(2), Example(4)]),
        ({"x": X, "scale": torch.tensor(1.0)}, "x", 1, [Example(2), Example(4)]),
        (
            {"x": X, "index": torch.arange(6) + 50, "path": FILES},
            "x",
            1,
            [Example(2, 52, "2.png"), Example(4, 54, "4.png")],
        ),
        ({"x": X, "label_ids": torch.arange(6), "names": FILES}, "x", 1, [Example(2), Example(4)]),
        ({"x": X, "idx": torch.zeros(6, 3), "path": "/data"}, "x", 1, [Example(2), Example(4)]),
        (Named(X, torch.arange(6), FILES), "images", 1, [Example(2, 2, "2.png"), Example(4, 4, "4.png")]),
        ([[X[:3], torch.zeros(3)], [X[3:], torch.zeros(3)]], "1.0", 2, [Example(1, None, None, 1)]),
        ([{"x": X[2], "file": "a.png"}, {"x": X[4], "id": 9}], "1.x", 1, [Example(1, 9)]),
        ({"x": X, "a": torch.zeros(3), "b": torch.zeros(3)}, "x", 1, []),  # its first dimension is not the examples
        ({"y": torch.zeros(6)}, "x", 1, []),
    ],
)
def test_rows_that_are_not_finite(batch: Any, entry: str, parts: int, expected: list[Example]) -> None:
    assert list(not_finite(batch, entry, parts)) == expected


def test_rows_that_show_it_alone() -> None:
    batch = {"x": torch.tensor([1.0, 9.0, 1.0, 8.0]), "idx": torch.tensor([7, 6, 5, 4])}
    assert alone(batch, lambda part: bool((part["x"] > 5).any())) == (Example(1, 6), Example(3, 4))
    assert alone({"x": torch.zeros(4), "y": torch.zeros(3)}, lambda _part: True) == ()
    assert alone(torch.zeros(3), lambda _part: True) == ()  # it is the whole batch
    assert alone(torch.zeros(65), lambda part: bool(part == 1)) == ()


def test_words() -> None:
    assert str(Example(3)) == "row 3 of the batch"
    assert str(Example(3, 41, "cat.png", 1)) == "row 3 of micro-batch 1 (dataset index 41, cat.png)"
    assert in_words([Example(3)]) == "row 3 of the batch"
    assert in_words([Example(row) for row in range(7)]) == "rows 0, 1, 2, 3, 4 and 2 more of the batch"
    known = "row 1 of the batch (dataset index 6), row 3 of the batch (dataset index 4)"
    assert in_words([Example(1, 6), Example(3, 4)]) == known


def test_a_nan_picture_is_named(tmp_path: Path) -> None:
    def spoil(step: int, part: list[Tensor]) -> list[Tensor]:
        if step == 60:
            part[0][3, 0, 1, 1] = math.nan
        return part

    loop = Loop(programs.cnn_task(), programs.images(1), spoil=spoil)
    result = steadyrun.replay(loop.run(tmp_path / "run", 80), programs.cnn_task)
    why = result.explain()
    assert (why.verdict, why.table) == ("data", [])  # a NaN that came in with the batch needs no experiment
    assert "row 3 of the batch" in why.why
    assert "Affected: row 3 of the batch." in str(result)
    expected = [{"row": 3, "dataset_index": None, "file": None, "micro_batch": None}]
    replay, experiments = (
        json.loads((result.incident.folder / f"{name}.json").read_text()) for name in ("replay", "experiments")
    )
    assert replay["culprit"]["examples"] == experiments["examples"] == expected
    assert replay["culprit"]["step"] == replay["first_bad"] == replay["incident"]["step"] == 60


def square(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return nn.functional.mse_loss(model(batch["x"])[:, 0], batch["y"])


def line_task() -> steadyrun.Task:
    torch.manual_seed(3)
    model = nn.Linear(4, 1)
    return steadyrun.Task(model, torch.optim.SGD(model.parameters(), lr=0.01), square)


def points() -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(4)
    first = 0
    while True:
        x = torch.randn(8, 4, generator=generator)
        y = x.sum(1) + 0.3 * torch.randn(8, generator=generator)
        yield {"x": x, "y": y, "index": torch.arange(first, first + 8), "path": [f"{first + n}.txt" for n in range(8)]}
        first += 8


def test_an_example_that_spikes_alone_is_named(tmp_path: Path) -> None:
    def spoil(step: int, part: dict[str, Any]) -> dict[str, Any]:
        if step == 300:
            part["y"][5] += 1000.0
        return part

    loop = Loop(line_task(), points(), spoil=spoil)
    result = steadyrun.replay(loop.run(tmp_path / "run", 330), line_task)
    why = result.explain()
    assert why.verdict == "data", str(result)
    assert why.examples == (Example(5, 2405, "2405.txt"),)
    assert "row 5 of the batch (dataset index 2405, 2405.txt) alone causes it" in str(result)
