"""Odd and damaged Parquet files: no number is wrong, what is lost is said, and nothing is read without end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hostile import (
    PARQUET,
    SEGMENT,
    assert_true_or_said,
    copied,
    everything,
    read_all,
    write_run,
)
from rows import new_writer

import steadyrun
from steadyrun.store import columns
from steadyrun.store.reader import open_run
from steadyrun.store.segment import SegmentReader

COUNT = pa.array(range(50), pa.int64())
NUMBERS = pa.array([float(number) for number in range(50)])
WORDS = pa.array(["x"] * 50)
TABLES: dict[str, tuple[list[tuple[str, Any]], bytes, str]] = {
    "no step": ([("time", NUMBERS), ("loss", NUMBERS)], b"[]", "'step'"),
    "no time": ([("step", COUNT), ("loss", NUMBERS)], b"[]", "'time'"),
    "steps of words": ([("step", WORDS), ("time", NUMBERS), ("loss", NUMBERS)], b"[]", "'step'"),
    "steps between steps": ([("step", NUMBERS), ("time", NUMBERS), ("loss", NUMBERS)], b"[]", "'step'"),
    "steps beyond int64": (
        [("step", pa.array([2**64 - 1] * 50, pa.uint64())), ("time", NUMBERS), ("loss", NUMBERS)],
        b"[]",
        "50 rows",
    ),
    "no steps at all": ([("step", pa.nulls(50, pa.int64())), ("time", NUMBERS), ("loss", NUMBERS)], b"[]", "50 rows"),
    "two of one name": ([("step", COUNT), ("time", NUMBERS), ("loss", NUMBERS), ("loss", NUMBERS)], b"[]", "'loss'"),
    "words": ([("step", COUNT), ("time", NUMBERS), ("loss", NUMBERS), ("lr", WORDS)], b"[]", "'lr'"),
    "lists": (
        [("step", COUNT), ("time", NUMBERS), ("loss", NUMBERS), ("lr", pa.array([[1.0]] * 50))],
        b"[]",
        "'lr'",
    ),
    "replaces no JSON": ([("step", COUNT), ("time", NUMBERS), ("loss", NUMBERS)], b"{", "list of replaced segments"),
    "replaces a number": ([("step", COUNT), ("time", NUMBERS), ("loss", NUMBERS)], b"5", "list of replaced segments"),
    "replaces deep": (
        [("step", COUNT), ("time", NUMBERS), ("loss", NUMBERS)],
        b"[" * 100_000,
        "list of replaced segments",
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_odd_tables_are_said_and_hinder_no_new_attempt(closed: Path, tmp_path: Path, name: str) -> None:
    run = copied(closed, tmp_path)
    arrays, replaces, said = TABLES[name]
    table = pa.Table.from_arrays([array for _, array in arrays], names=[label for label, _ in arrays])
    pq.write_table(table.replace_schema_metadata({"steadyrun.replaces": replaces}), run / PARQUET)
    assert [line for line in read_all(run) if said in line]
    if "loss" in open_run(run).names() and "50 rows" not in said:
        assert open_run(run).series("loss").values.tolist() == list(range(50))
    with steadyrun.record(run) as again:
        again.step(1.0)


def test_a_damaged_list_of_segments_counts_nothing_twice(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", close=False)
    data = (run / SEGMENT).read_bytes()
    write_run(tmp_path / "twin", close=True)
    table = pq.read_table(tmp_path / "twin" / PARQUET).replace_schema_metadata({"steadyrun.replaces": b'["ste'})
    pq.write_table(table, run / PARQUET)
    (run / SEGMENT).write_bytes(data)
    assert "list of replaced segments" in assert_true_or_said(run)[0]


def test_a_series_cannot_be_renamed(closed: Path, tmp_path: Path) -> None:
    run = copied(closed, tmp_path)
    data = (run / PARQUET).read_bytes()
    (run / PARQUET).write_bytes(data.replace(b"loss", b"lots"))
    assert "the checksum of its footer does not match" in assert_true_or_said(run)[0]


def test_parquet_of_an_older_version_reads(closed: Path, tmp_path: Path) -> None:
    run = copied(closed, tmp_path)
    pq.write_table(pq.read_table(run / PARQUET), run / PARQUET)
    assert b"steadyrun-crc32" not in (run / PARQUET).read_bytes()
    assert assert_true_or_said(run) == []


def test_of_a_bomb_the_beginning_is_read(closed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = copied(closed, tmp_path)
    steps = np.arange(5_000)
    table = pa.table({"step": steps, "time": steps.astype(float), "loss": np.ones(5_000)})
    pq.write_table(table, run / PARQUET, row_group_size=300)
    for name, most in (("_MOST_ROWS", 1_000), ("_MOST_CELLS", 3_000)):
        with monkeypatch.context() as patch:
            patch.setattr(columns, name, most)
            view = open_run(run)
            assert len(view.series("loss")) == 900
            assert [str(drop) for drop in view.dropped] == [
                "steps-001.parquet: 4100 rows not read, it has more rows than steadyrun reads of one table"
            ]
    assert len(open_run(run).series("loss")) == 5_000


def test_a_wide_table_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    file, reader_of = pq.ParquetFile, SegmentReader
    monkeypatch.setattr(columns.pq, "ParquetFile", lambda *a, **k: (opened.append("file"), file(*a, **k))[1])
    monkeypatch.setattr(columns, "SegmentReader", lambda path: (opened.append("segment"), reader_of(path))[1])
    writer = new_writer(tmp_path)
    writer.write("steps", np.arange(5), np.arange(5.0), {f"series/{number}": np.ones(5) for number in range(300)})
    assert len(everything(open_run(tmp_path).as_of_now())) == 300
    assert opened == ["segment"] * 2  # once to list it, once to read it
    writer.close()
    assert len(everything(open_run(tmp_path).as_of_now())) == 300
    assert opened == ["segment"] * 2 + ["file"]
