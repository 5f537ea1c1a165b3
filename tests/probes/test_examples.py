"""Batch hashes: the same batch has the same hash, another one does not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_programs import values

import steadyrun
from steadyrun.probes import examples
from steadyrun.probes.batch_hashes import arrays_of, batch_hash, count_tokens, example_hashes


def hashes(batch: object, pad_id: int | None = None) -> list[int]:
    per_example = example_hashes(arrays_of(batch), pad_id)
    assert per_example is not None
    return [int(value) for value in per_example]


def slow_hash(row: list[int], weights: list[int]) -> int:
    """The definition, with Python's unbounded integers."""
    total = sum(value * weight for value, weight in zip(row, weights, strict=True)) % 2**64
    total = total - 2**64 if total >= 2**63 else total
    return ((total ^ (total >> 29)) % 2**64) & (2**52 - 1)


def test_against_the_definition() -> None:
    rows = np.random.default_rng(0).integers(-(2**40), 2**40, size=(5, 7))
    weights = np.random.Generator(np.random.PCG64(0)).integers(-(2**62), 2**62, size=7, dtype=np.int64) * 2 + 1
    assert hashes(rows) == [slow_hash(row, weights.tolist()) for row in rows.tolist()]


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8]),
    shape=st.lists(st.integers(1, 6), min_size=1, max_size=4),
)
def test_rows_follow_their_content(seed: int, dtype: torch.dtype, shape: list[int]) -> None:
    data = (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 200).to(dtype)
    per_row = hashes(data)
    assert per_row == hashes(data.clone())
    order = torch.randperm(shape[0], generator=torch.Generator().manual_seed(seed))
    assert hashes(data[order]) == [per_row[index] for index in order.tolist()]
    changed = data.clone()
    changed.reshape(-1)[-1] += 1
    assert hashes(changed) != per_row
    assert all(0 <= value < 2**52 for value in per_row)


def test_numpy_and_torch_agree_and_layout_does_not_matter() -> None:
    data = torch.randn(6, 4, 5)
    assert hashes(data) == hashes(data.numpy()) == hashes(data.transpose(1, 2).contiguous().transpose(1, 2))
    assert hashes((data, data * 2)) == hashes({"a": data, "b": data * 2})
    assert hashes((data, data * 2)) != hashes((data * 2, data))


def test_padding_does_not_change_an_example() -> None:
    rows = torch.tensor([[5, 6, 7], [8, 9, 3]])
    padded = torch.nn.functional.pad(rows, (0, 4), value=3)
    labels = torch.nn.functional.pad(rows, (0, 4), value=-100)
    assert hashes((rows, rows), pad_id=3) == hashes((padded, labels), pad_id=3)
    assert hashes((rows, rows)) != hashes((padded, labels))


def test_a_huge_batch_is_hashed_by_a_part() -> None:
    data = torch.zeros(4, 3, 256, 256)
    other = data.clone()
    other[2] += 0.5
    one, two = hashes(data), hashes(other)
    assert [a == b for a, b in zip(one, two, strict=True)] == [True, True, False, True]


def test_tokens_are_counted_without_padding() -> None:
    batch = {"x": torch.tensor([[1, 2, 0], [3, 0, 0]]), "mask": torch.ones(2, 3).bool()}
    assert count_tokens(arrays_of(batch), None) == 6
    assert count_tokens(arrays_of(batch), 0) == 3
    assert count_tokens(arrays_of(torch.randn(3, 3)), None) is None


def test_what_a_run_records(tmp_path: Path) -> None:
    batches = [torch.randint(0, 100, (4, 6), generator=torch.Generator().manual_seed(n)) for n in (0, 1, 0)]
    buffer = torch.empty(4, 6, dtype=torch.long)  # a loop that reuses its buffer
    with steadyrun.record(tmp_path, config={"pad_id": 0}) as run:
        for batch in batches:
            buffer.copy_(batch)
            run.step(1.0, batch=buffer)
        run.val(1.0, batches=[batches[1], torch.full((2, 6), 7)])
    batch_hashes = values(tmp_path, "batch_hash")
    assert batch_hashes[0] == batch_hashes[2] != batch_hashes[1]
    assert batch_hashes[0] == float(batch_hash(example_hashes(arrays_of(batches[0]), 0)))
    assert values(tmp_path, "examples") == [4, 4, 4]
    assert values(tmp_path, "tokens") == [float((batch != 0).sum()) for batch in batches]
    view = steadyrun.open_run(tmp_path)
    train, val = (set(view.series(f"example_hash/{split}").values) for split in ("train", "val"))
    assert len(train) == 8
    assert len(val) == 5
    assert len(train & val) == 4


def test_the_sample_of_examples_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from steadyrun.probes import hash_samples

    monkeypatch.setattr(hash_samples, "_MOST_KEPT", 200)
    with steadyrun.record(tmp_path) as run:
        for step in range(100):
            run.step(1.0, batch=torch.arange(step * 64, step * 64 + 64).view(64, 1))
        run.val(1.0, batches=[torch.arange(6400).view(-1, 1)])
    kept = [sample._hashes for sample in run._flusher.examples._kept.values()]
    assert all(len(sample_hashes) <= 200 for sample_hashes in kept)
    assert kept[0] & kept[1] == min(kept, key=len)


class Endless:
    """A loader that never ends, and says how much was taken from it."""

    def __init__(self) -> None:
        self.taken = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            self.taken += 1
            yield torch.full((2, 3), float(self.taken))


@pytest.mark.parametrize(
    ("bound", "value", "taken", "said"),
    [
        ("_MOST_BATCHES", 20, 21, "20 of its batches"),
        ("_MOST_BYTES", 24 * 10, 11, "GiB of its batches"),
        ("_MOST_SECONDS", -1.0, 1, "seconds of its batches"),
    ],
)
def test_an_endless_validation_loader_is_cut(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    bound: str,
    value: float,
    taken: int,
    said: str,
) -> None:
    monkeypatch.setattr(examples, bound, value)
    before = torch.get_rng_state()
    with steadyrun.record(tmp_path) as run:
        run.step(1.0)
        for _ in range(2):
            loader = Endless()
            run.val(0.5, batches=loader)
            assert loader.taken == taken
    assert capsys.readouterr().err.count(said) == 1
    assert torch.equal(torch.get_rng_state(), before)
    view = steadyrun.open_run(tmp_path)
    assert len(view.events("validation-cut")) == 1
    first, second = (event.fields["data"] for event in view.events("validation"))
    assert first == second
    assert ("inputs_hash" in first) == (bound != "_MOST_SECONDS"), "what depends on the clock identifies nothing"


def test_an_endless_validation_loader_is_cut_by_itself(tmp_path: Path) -> None:
    with steadyrun.record(tmp_path) as run:
        loader = Endless()
        run.val(0.5, batches=loader)
    assert loader.taken <= 10_001
    assert values(tmp_path, "val_loss") == [0.5]


def test_a_list_is_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, "_MOST_BATCHES", 3)
    with steadyrun.record(tmp_path) as run:
        run.val(0.5, batches=[torch.full((2, 3), float(number)) for number in range(10)])
    view = steadyrun.open_run(tmp_path)
    assert view.events("validation")[0].fields["data"]["examples"] == 20
    assert not view.events("validation-cut")


@pytest.mark.parametrize("batches", [5, object(), (number / 0 for number in [1])])
def test_batches_that_cannot_be_read_do_not_cost_the_loss(tmp_path: Path, batches: object) -> None:
    with steadyrun.record(tmp_path) as run:
        run.val(0.5, batches=batches)
    assert values(tmp_path, "val_loss") == [0.5]


def one_by_one(batches: list[Any], pad_id: int | None, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Record batches; with `shape_of` set aside every one is looked at by itself."""
    monkeypatch.setattr(examples, "shape_of", lambda *_: None)
    record_batches(batches, pad_id, root)
    monkeypatch.undo()


def record_batches(batches: list[Any], pad_id: int | None, root: Path) -> None:
    with steadyrun.record(root, config={} if pad_id is None else {"pad_id": pad_id}) as run:
        for batch in batches:
            run.step(1.0, batch=batch)


@pytest.mark.parametrize("pad_id", [None, 0])
def test_batches_looked_at_together_have_the_numbers_they_have_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pad_id: int | None
) -> None:
    drawn = torch.Generator().manual_seed(0)

    def tokens(length: int) -> torch.Tensor:
        return torch.randint(0, 4, (6, length), generator=drawn)

    images = torch.rand(6, 3, 4, generator=drawn)
    broken = images.clone()
    broken[2, 1] = float("nan")
    labels = torch.tensor([1, 2, 3, -100, 1, 0])
    batches: list[Any] = [
        {"tokens": tokens(length), "targets": tokens(length), "flag": torch.arange(6) > step}
        for step, length in enumerate([5, 7, 5, 1, 7, 5])
    ]
    batches[1]["targets"][2:4] = -100
    batches += [(images, labels), (broken, labels.flip(0)), (images, labels + 1), (images * 1e38, labels)]
    batches += [(images.bfloat16(), labels), (images.bfloat16() + 1, labels), images, images + 1, (images.numpy(), 3)]
    batches += [[(images, labels), (broken, labels)], torch.tensor(3.0), torch.rand(1, 4), torch.zeros(0, 3)]
    one_by_one(batches, pad_id, tmp_path / "alone", monkeypatch)
    record_batches(batches, pad_id, tmp_path / "together")
    alone, together = (steadyrun.open_run(tmp_path / name) for name in ("alone", "together"))
    names = {name for name in alone.names() if not name.startswith(("step_time", "time"))}
    assert {"batch_hash", "target_hash", "label_hash", "batch_nonfinite", "ignored_labels", "tokens"} <= names
    for name in names:
        mine, other = alone.series(name), together.series(name)
        np.testing.assert_array_equal(mine.steps, other.steps, err_msg=name)
        np.testing.assert_array_equal(mine.values, other.values, err_msg=name)
