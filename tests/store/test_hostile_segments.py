"""Odd and damaged segments: no byte is read again and again, and no small file becomes a large one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hostile import (
    SEGMENT,
    STEPS,
    assert_true_or_said,
    copied,
    everything,
)

from steadyrun.store import segment
from steadyrun.store.reader import open_run
from steadyrun.store.segment import SegmentReader, SegmentWriter, checksum, names_checksum, schema_of


@pytest.mark.parametrize(
    "word", [b"\xff" * 8, b"\xff\xff\xff\xff\x00\x00\x00\x10", b"\xff\xff\xff\xff\x80\x00\x00\x00"]
)
def test_bytes_like_the_beginning_of_a_batch_are_not_tried(
    killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: bytes
) -> None:
    tried: list[int] = []
    reads = SegmentReader._reads
    monkeypatch.setattr(SegmentReader, "_reads", lambda self, *given: (tried.append(given[0]), reads(self, *given))[1])
    run = copied(killed, tmp_path)
    with (run / SEGMENT).open("ab") as file:
        file.write(word * 50_000)
    assert "400000 bytes not read" in assert_true_or_said(run)[0]
    assert tried == []


def test_batches_inside_of_batches_are_tried_for_a_while_only(
    killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads of batches that claim all that follows, one behind the other: each would be copied to its end."""
    run = copied(killed, tmp_path)
    data = (run / SEGMENT).read_bytes()
    start = data.index(b"\xff\xff\xff\xff", 8)
    head = data[start : start + 8 + int.from_bytes(data[start + 4 : start + 8], "little")]
    bad = head.replace(names_checksum(["step", "time", "loss", "lr"]).encode(), b"00000000")
    (run / SEGMENT).write_bytes(data + bytes(8) + bad * 400)
    copies = 0
    joined = SegmentReader._joined

    def counted(self: SegmentReader, first: int, end: int) -> Any:
        nonlocal copies
        copies += end - first
        return joined(self, first, end)

    monkeypatch.setattr(SegmentReader, "_joined", counted)
    monkeypatch.setattr(segment, "_SEARCHED", 100_000)
    assert assert_true_or_said(run)
    assert 0 < copies < 2_000_000


def test_a_compressed_batch_is_not_unpacked(killed: Path, tmp_path: Path) -> None:
    run = copied(killed, tmp_path)
    schema, rows = schema_of(["loss", "lr"]), 1_000_000
    batch = pa.record_batch([pa.array(np.zeros(rows, np.int64)), *[pa.array(np.ones(rows))] * 3], schema=schema)
    said = {
        "rows": str(rows),
        "names": names_checksum(schema.names),
        "crc": "".join(f"{checksum(column):08x}" for column in batch.columns),
    }
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.OSFile(str(run / SEGMENT), "wb") as file, pa.ipc.new_stream(file, schema, options=options) as stream:
        stream.write_batch(batch, custom_metadata=said)
    before = pa.total_allocated_bytes()
    reader = SegmentReader(run / SEGMENT)
    assert list(reader.batches(reader.names)) == []
    assert pa.total_allocated_bytes() - before < rows
    assert reader.dropped


def test_a_tail_of_holes_is_not_read_to_its_end(killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = copied(killed, tmp_path)
    os.truncate(run / SEGMENT, 1 << 36)
    read = 0
    pieces = SegmentReader._pieces

    def counted(self: SegmentReader, start: int) -> Any:
        nonlocal read
        for offset, piece in pieces(self, start):
            read += len(piece)
            yield offset, piece

    monkeypatch.setattr(SegmentReader, "_pieces", counted)
    monkeypatch.setattr(segment, "_SEARCHED", 2**20)
    assert len(everything(open_run(run).as_of_now())["loss"]) == STEPS
    assert 0 < read <= 20 * 2**20


def test_a_large_segment_is_read_up_to_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = SegmentWriter(tmp_path / "steps-001-00000.arrow", ["loss"])
    ends = []
    for step in range(3):
        writer.write([[step], [0.0], [1.0]])
        ends.append(writer.size)
    monkeypatch.setattr(segment, "_LARGEST", ends[1])
    reader = SegmentReader(writer.path)
    assert [batch.columns["step"].to_pylist() for batch in reader.batches(reader.names)] == [[0], [1]]
    assert [str(drop) for drop in reader.dropped] == [
        f"steps-001-00000.arrow: {ends[2] - ends[1]} bytes not read, it is larger than steadyrun reads of one segment"
    ]
    writer.close()
