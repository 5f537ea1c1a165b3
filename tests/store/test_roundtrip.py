"""What is written is read back, whatever its shape."""

import math
import shutil
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import Twin, new_writer, only_file, points, same

import steadyrun
from steadyrun.errors import UsageError
from steadyrun.store import writer as table_module
from steadyrun.store.reader import open_run

values = st.dictionaries(
    st.sampled_from("abcdef"), st.none() | st.floats(width=64, allow_nan=True, allow_infinity=True), max_size=6
)
actions = st.lists(st.tuples(st.sampled_from(["row", "flush"]), values), max_size=40)


@settings(max_examples=60)
@given(actions, st.booleans())
def test_any_rows_come_back(actions: list[tuple[str, dict[str, float | None]]], closed: bool) -> None:
    root = Path(tempfile.mkdtemp())
    try:
        twin = Twin(new_writer(root))
        for step, (action, row) in enumerate(actions):
            if action == "row":
                twin.append(step, row)
            else:
                twin.writer.flush()
        twin.writer.close() if closed else twin.writer.flush()
        view = open_run(root)
        for name in {name for _, row in twin.rows for name in row}:
            assert same(points(view.series(name)), twin.expected(name))
        assert view.verify() == []
    finally:
        shutil.rmtree(root)


def test_missing_is_not_nan(tmp_path: Path) -> None:
    twin = Twin(new_writer(tmp_path))
    twin.append(0, {"loss": math.nan, "extra": None})
    twin.append(1, {"loss": 1.0})
    twin.writer.flush()
    loss = open_run(tmp_path).series("loss")
    assert loss.steps.tolist() == [0, 1]
    assert math.isnan(loss.values[0])
    assert len(open_run(tmp_path).series("extra")) == 0


def test_a_series_may_appear_in_the_middle(tmp_path: Path) -> None:
    twin = Twin(new_writer(tmp_path))
    for step in range(10):
        twin.append(step, {"loss": 1.0, **({"late": 2.0} if step >= 7 else {})})
        if step == 4:
            twin.writer.flush()
    twin.writer.close()
    assert points(open_run(tmp_path).series("late")) == [(7, 2.0), (8, 2.0), (9, 2.0)]
    assert len(open_run(tmp_path).series("loss")) == 10


def test_log_calls_of_one_step_share_a_row(tmp_path: Path) -> None:
    writer = new_writer(tmp_path)
    writer.merge("log", 3, {"a": 1.0}, 0.0)
    writer.merge("log", 3, {"b": 2.0}, 0.0)
    writer.merge("log", 3, {"a": 5.0}, 0.0)  # a second value of the same name is not lost
    writer.close()
    view = open_run(tmp_path)
    assert points(view.series("a")) == [(3, 1.0), (3, 5.0)]
    assert points(view.series("b")) == [(3, 2.0)]
    assert pq.read_table(tmp_path / "metrics/rank-00000/log-001.parquet").num_rows == 2


def test_segments_rotate_and_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "SEGMENT_BYTES", 2_000)
    twin = Twin(new_writer(tmp_path))
    for step in range(300):
        twin.append(step, {"loss": step / 7})
        if step % 10 == 9:
            twin.writer.flush()
    assert len(list(tmp_path.glob("metrics/*/*.arrow"))) > 3
    assert same(points(open_run(tmp_path).series("loss")), twin.expected("loss"))
    twin.writer.close()
    assert sorted(path.name for path in tmp_path.glob("metrics/*/*")) == ["attempt-001", "steps-001.parquet"]
    assert same(points(open_run(tmp_path).series("loss")), twin.expected("loss"))


def test_reads_while_it_is_written(tmp_path: Path) -> None:
    twin = Twin(new_writer(tmp_path))
    view = open_run(tmp_path)
    for step in range(30):
        twin.append(step, {"loss": float(step)})
        twin.writer.flush()
        assert points(view.series("loss")) == twin.expected("loss")
    twin.writer.close()  # compaction replaces the files under the reader
    assert points(view.series("loss")) == twin.expected("loss")


def test_a_reader_survives_compaction_between_listing_and_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from steadyrun.store import reader

    twin = Twin(new_writer(tmp_path))
    twin.append(0, {"loss": 1.0})
    twin.writer.flush()
    view = open_run(tmp_path)
    listing = reader.data_files

    def list_then_close(*arguments):
        files = listing(*arguments)
        if not list(tmp_path.glob("metrics/*/*.parquet")):
            twin.writer.close()
        return files

    monkeypatch.setattr(reader, "data_files", list_then_close)
    assert points(view.series("loss")) == [(0, 1.0)]


def test_an_interrupted_compaction_counts_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twin = Twin(new_writer(tmp_path))
    twin.append(0, {"loss": 1.0})
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)  # killed after the rename, before the deletes
    twin.writer.close()
    assert len(list(tmp_path.glob("metrics/*/steps*"))) == 2
    assert points(open_run(tmp_path).series("loss")) == [(0, 1.0)]


def test_only_the_asked_column_is_read(tmp_path: Path) -> None:
    """Damage in one column is not noticed by, and does no harm to, a read of another."""
    twin = Twin(new_writer(tmp_path))
    for step in range(50):
        twin.append(step, {"loss": 1.0, "other": 12345.678})
    twin.writer.flush()
    segment = only_file(tmp_path, "arrow")
    data = bytearray(segment.read_bytes())
    import struct

    offset = data.index(struct.pack("<d", 12345.678))
    data[offset + 3] ^= 16
    segment.write_bytes(data)
    view = open_run(tmp_path)
    assert len(view.series("loss")) == 50
    assert view.dropped == []
    assert len(view.series("other")) == 0
    assert "checksum of 'other'" in str(view.dropped[0])


def test_an_unknown_series_is_a_clear_error(tmp_path: Path) -> None:
    twin = Twin(new_writer(tmp_path))
    twin.append(0, {"grad_norm": 1.0})
    twin.writer.flush()
    with pytest.raises(UsageError, match="did you mean grad_norm"):
        open_run(tmp_path).series("gradnorm")


def test_a_folder_whose_name_is_not_utf8(tmp_path: Path) -> None:
    folder = tmp_path / "\udcff"
    run = steadyrun.record(folder, flush_steps=1)
    run.log(loss=1.0)
    assert steadyrun.open_run(folder).series("loss").values.tolist() == [1.0]
    run.close()
    assert steadyrun.open_run(folder).series("loss").values.tolist() == [1.0]
