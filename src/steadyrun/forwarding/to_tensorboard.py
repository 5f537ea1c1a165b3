"""Forward to TensorBoard: an event file, written with TensorBoard's own record writer, without tensorflow."""

from __future__ import annotations

import io
import itertools
import os
import platform
import time
from pathlib import Path
from typing import Any

from steadyrun.forwarding.outgoing_text import Names, sentence
from steadyrun.forwarding.sink import About, Sink
from steadyrun.records import Event
from steadyrun.store.tail import TableRow

_numbers = itertools.count()


class TensorBoard(Sink):
    """One event file per attempt, in `<run>/tensorboard` or the given folder."""

    name = "forwarding to tensorboard"

    def __init__(self, folder: str) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._events, self._summaries, self._tensors, self._types = event_pb2, summary_pb2, tensor_pb2, types_pb2
        self._packer = RecordWriter
        self._folder = Path(folder).expanduser().absolute() if folder else None  # the program may change its folder
        self._path: Path | None = None
        self._waiting = io.BytesIO()
        self._names = Names(r"[^\w./ ()%+:=@-]", 500)

    def open(self, about: About) -> None:
        folder = self._folder or about.root / "tensorboard"
        folder.mkdir(parents=True, exist_ok=True)
        now = time.time()
        name = f"events.out.tfevents.{int(now):010d}.{platform.node()}.{os.getpid()}.{next(_numbers)}"
        self._waiting = io.BytesIO()
        self._put(wall_time=now, file_version="brain.Event:2")
        self._path = folder / name
        self.flush()

    def seam(self, step: int) -> None:
        start = self._events.SessionLog(status=self._events.SessionLog.START)
        self._put(wall_time=time.time(), step=step, session_log=start)

    def scalars(self, row: TableRow) -> None:
        values = [
            self._summaries.Summary.Value(tag=self._names(name), simple_value=value)
            for name, value in row.values.items()
        ]
        if self._waiting.tell() > 2**20:  # before adding: if this fails, the row is handed over again
            self.flush()
        self._put(wall_time=row.time, step=row.step, summary=self._summaries.Summary(value=values))

    def finding(self, event: Event) -> None:
        """An indented text: TensorBoard renders Markdown, and shows this verbatim."""
        tensor = self._tensors.TensorProto(dtype=self._types.DT_STRING, string_val=[f"    {sentence(event)}".encode()])
        plugin = self._summaries.SummaryMetadata.PluginData(plugin_name="text")
        kind = self._summaries.SummaryMetadata(plugin_data=plugin)
        value = self._summaries.Summary.Value(tag=f"steadyrun/{event.kind}", tensor=tensor, metadata=kind)
        self._put(wall_time=event.time, step=event.step or 0, summary=self._summaries.Summary(value=[value]))

    def flush(self) -> None:
        """A single unbuffered write, so that a forked child does not write it again."""
        assert self._path is not None
        data = self._waiting.getvalue()
        if not data:
            return
        with self._path.open("ab", buffering=0) as file:
            end = file.tell()
            if file.write(data) != len(data):
                file.truncate(end)
                raise OSError(f"only a part was written to {self._path}: is the disk full?")
        self._waiting = io.BytesIO()

    def _put(self, **fields: Any) -> None:
        self._packer(self._waiting).write(self._events.Event(**fields).SerializeToString())
