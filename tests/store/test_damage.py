"""A truncated, zero-filled or bit-flipped file costs what was damaged, and says so."""

import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rows import Twin, new_writer, only_file, points

from steadyrun.errors import UsageError
from steadyrun.store.reader import open_run

BATCHES, ROWS = 6, 10


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, list[int]]:
    """A run of six batches, the bytes of its segment, and where each batch ends."""
    root = tmp_path_factory.mktemp("damage")
    twin = Twin(new_writer(root))
    ends = []
    segment = root / "metrics/rank-00000/steps-001-00000.arrow"
    for batch in range(BATCHES):
        for row in range(ROWS):
            twin.append(batch * ROWS + row, {"loss": math.sin(batch * ROWS + row), "lr": None if row == 3 else 0.1})
        twin.writer.flush()
        ends.append(segment.stat().st_size)
    return root, segment.read_bytes(), ends


def read_damaged(written: tuple[Path, bytes, list[int]], data: bytes) -> tuple[list[tuple[int, float]], list[str]]:
    root = written[0]
    (root / "metrics/rank-00000/steps-001-00000.arrow").write_bytes(data)
    view = open_run(root)
    try:
        losses = points(view.series("loss"))
    except UsageError:  # the header itself is gone
        losses = []
    return losses, [str(drop) for drop in view.dropped]


TRUTH = [(step, math.sin(step)) for step in range(BATCHES * ROWS)]


def test_whole(written) -> None:
    losses, dropped = read_damaged(written, written[1])
    assert losses == TRUTH
    assert dropped == []


@pytest.mark.parametrize("cut", [1, 7, 40, 150, 399])
def test_truncated(written, cut: int) -> None:
    _, data, ends = written
    losses, dropped = read_damaged(written, data[:-cut])
    whole = sum(end <= len(data) - cut for end in ends)
    assert losses == TRUTH[: whole * ROWS]
    assert len(dropped) == 1


@pytest.mark.parametrize("zeros", [4, 8, 64, 300, 5000])
def test_zero_filled_tail(written, zeros: int) -> None:
    _, data, ends = written
    losses, dropped = read_damaged(written, data + bytes(zeros))
    assert losses == TRUTH
    assert len(dropped) == 1
    losses, dropped = read_damaged(written, data[:-zeros] + bytes(zeros) if zeros < 400 else data)
    whole = sum(end <= len(data) - zeros for end in ends) if zeros < 400 else BATCHES
    assert losses[: whole * ROWS] == TRUTH[: whole * ROWS]


@settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_never_becomes_a_wrong_number(written, where: float, bit: int) -> None:
    data = bytearray(written[1])
    data[int(where * len(data))] ^= 1 << bit
    losses, dropped = read_damaged(written, bytes(data))
    assert set(losses) <= set(TRUTH)
    assert losses == TRUTH or dropped


def test_damage_in_the_middle_costs_one_batch(written) -> None:
    _, data, ends = written
    broken = bytearray(data)
    broken[ends[1] + 4] ^= 0x40  # the length of the third batch's metadata
    losses, dropped = read_damaged(written, bytes(broken))
    assert losses == TRUTH[: 2 * ROWS] + TRUTH[3 * ROWS :]
    assert dropped


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(junk=st.binary(max_size=600))
def test_any_bytes_at_the_end(written, junk: bytes) -> None:
    losses, dropped = read_damaged(written, written[1] + junk)
    assert losses == TRUTH
    assert dropped or not junk.strip(b"\xff\x00")


def test_a_damaged_segment_survives_compaction_as_evidence(tmp_path: Path) -> None:
    twin = Twin(new_writer(tmp_path))
    for step in range(40):
        twin.append(step, {"loss": 1.0})
        if step % 10 == 9:
            twin.writer.flush()
    segment = only_file(tmp_path, "arrow")
    data = bytearray(segment.read_bytes())
    data[-30] ^= 1
    segment.write_bytes(data)
    twin.writer.close()
    view = open_run(tmp_path)
    assert len(view.series("loss")) == 30
    assert segment.exists()
    assert view.events("dropped")[0].fields["file"] == segment.name


def test_a_damaged_parquet_file_costs_its_group(tmp_path: Path) -> None:
    twin = Twin(new_writer(tmp_path))
    for step in range(2000):
        twin.append(step, {"loss": math.sin(step)})
    twin.writer.close()
    path = only_file(tmp_path, "parquet")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    view = open_run(tmp_path)
    losses = points(view.series("loss"))
    assert set(losses) <= {(step, math.sin(step)) for step in range(2000)}
    path.write_bytes(b"PAR1 nothing")
    assert open_run(tmp_path).names() == []
    assert "not readable as Parquet" in str(open_run(tmp_path).verify() or _names_dropped(tmp_path))


def _names_dropped(root: Path) -> list[str]:
    view = open_run(root)
    view.names()
    return [str(drop) for drop in view.dropped]


def test_a_torn_event_line_costs_itself(tmp_path: Path) -> None:
    writer = new_writer(tmp_path)
    writer.event("note", 1, message="one")
    writer.close()
    log = tmp_path / "events/rank-00000.jsonl"
    log.write_bytes(log.read_bytes() + b'{"kind": "note", "st')
    writer = new_writer(tmp_path)
    writer.event("note", 2, message="two")
    view = open_run(tmp_path)
    assert [event.step for event in view.events()] == [1, 2]
    assert "line 2" in str(view.dropped[0])


@pytest.mark.parametrize("most", [10**6, 5])
@pytest.mark.parametrize("at", [None, 0.3, 0.6, 0.95])
def test_readers_of_many_series_see_what_readers_of_one_see(
    written, monkeypatch: pytest.MonkeyPatch, at: float | None, most: int
) -> None:
    root, data, ends = written
    changed = bytearray(data)
    if at is not None:
        changed[int(ends[2] + at * (ends[3] - ends[2]))] ^= 0xFF
    (root / "metrics/rank-00000/steps-001-00000.arrow").write_bytes(changed)
    monkeypatch.setattr("steadyrun.store.columns._MOST_BATCHES", most)
    many, one = open_run(root).as_of_now(), open_run(root)
    for name in ("loss", "lr", "loss"):
        assert points(many.series(name)) == points(one.series(name))
        assert many.dropped == one.dropped
