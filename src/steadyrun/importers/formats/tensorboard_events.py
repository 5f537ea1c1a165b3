"""The records of one TensorBoard event file, read by TensorBoard itself; scalars of every fashion out of them."""

from __future__ import annotations

import struct
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from steadyrun.importers.anomalies import Anomalies
from steadyrun.importers.formats.extras import needed

Point = tuple[float, int | None, str, float]
"""Time, step, name, value."""

LOADER = "tensorboard.backend.event_processing.event_file_loader"
_FRAME = 16  # bytes around a record: its length, and two checksums
_HPARAMS = "_hparams_/session_start_info"
_FLOAT = 1  # DT_FLOAT
_NUMBERS = {1, 2, 3, 4, 5, 6, 9, 14, 17, 19, 22, 23}  # DT_FLOAT, DT_DOUBLE, DT_INT32… DT_UINT64
_EVERY = 1_000
_FIRST = 100  # records that tell what a file is about


class Events:
    """The points of one event file. What could not be read is known after the last of them."""

    def __init__(self, path: Path, anomalies: Anomalies, config: dict[str, Any] | None = None) -> None:
        self._loader = needed(LOADER, "tensorboard", path)
        self._event = needed("tensorboard.compat.proto.event_pb2", "tensorboard", path).Event
        self._undecodable = needed("google.protobuf.message", "tensorboard", path).DecodeError
        self._tensors = needed("tensorboard.util.tensor_util", "tensorboard", path)
        self.path, self.anomalies, self.config = path, anomalies, {} if config is None else config
        self.records = 0
        self.most = sys.maxsize  # records to read
        self.at = 0  # the byte after the last record that was read
        self._plugins: dict[str, str] = {}
        self._passed: Counter[str] = Counter()

    def points(self) -> Iterator[Point]:
        """All scalars in the order of the file."""
        parse = self._event.FromString
        for record in self._records():
            try:
                event = parse(record)
            except self._undecodable:
                self.anomalies.note("records that are no event", "left out", f"{self.path.name}, byte {self.at:,}")
                continue
            if not event.HasField("summary"):
                continue
            time, step = event.wall_time, event.step
            for value in event.summary.value:
                kind = value.WhichOneof("value")
                if kind == "simple_value":
                    yield time, step, value.tag, value.simple_value
                    continue
                number = self._other(value, kind)
                if number is not None:
                    yield time, step, value.tag, number

    @property
    def lost(self) -> int:
        """Bytes that could not be read."""
        return self.path.stat().st_size - self.at

    @property
    def hparams(self) -> bool:
        """Whether hyperparameters were met."""
        return _HPARAMS in self._plugins

    def tell(self) -> None:
        """What was passed over, and what is lost."""
        for kind, count in self._passed.items():
            self.anomalies.note(f"{kind} among the scalars", "left out", count=count)
        if self.lost > 0:
            where = f"{self.path.name}, byte {self.at:,}; {self.lost:,} bytes lost"
            self.anomalies.note("a record that is cut off or damaged", "the file is read up to there", where)

    def _records(self) -> Iterator[bytes]:
        """TensorBoard's reader ends where a record is cut off or its checksum is wrong; so do we."""
        loaded = self._loader.RawEventFileLoader(str(self.path)).Load()
        try:
            for record in loaded:
                yield record
                self.at += _FRAME + len(record)
                self.records += 1
                if not self.records % _EVERY:
                    self.anomalies.progress(self.at)
                if self.records >= self.most:
                    return
        except (MemoryError, OverflowError):
            return  # a record that claims to be larger than any memory: lost like one that is cut off

    def _other(self, value: Any, kind: str | None) -> float | None:
        """A scalar that was written as a tensor; anything else is counted, hyperparameters are kept."""
        plugin = value.metadata.plugin_data.plugin_name if value.HasField("metadata") else ""
        plugin = self._plugins.setdefault(value.tag, plugin)
        if plugin == "hparams":
            self._keep(value)
            return None
        if kind == "tensor" and plugin in ("", "scalars"):
            number = self._number(value.tensor)
            if number is not None:
                return number
        self._passed[_KINDS.get(plugin or str(kind), "values that are no numbers")] += 1
        return None

    def _number(self, tensor: Any) -> float | None:
        if tensor.dtype == _FLOAT and not tensor.tensor_shape.dim:
            if len(tensor.float_val) == 1:
                return float(tensor.float_val[0])
            if len(tensor.tensor_content) == 4:
                return float(struct.unpack("<f", tensor.tensor_content)[0])
        if tensor.dtype not in _NUMBERS or any(dimension.size != 1 for dimension in tensor.tensor_shape.dim):
            return None
        try:
            array = self._tensors.make_ndarray(tensor)
            return float(array.reshape(-1)[0]) if array.size == 1 else None
        except (ValueError, TypeError, IndexError):
            return None

    def _keep(self, value: Any) -> None:
        if value.tag != _HPARAMS:
            return
        metadata = needed("tensorboard.plugins.hparams.metadata", "tensorboard", self.path)
        error = needed("tensorboard.plugins.hparams.error", "tensorboard", self.path).HParamsError
        try:
            started = metadata.parse_session_start_info_plugin_data(value.metadata.plugin_data.content)
        except (error, self._undecodable):
            self.anomalies.note("hyperparameters that cannot be read", "left out", self.path.name)
            return
        for name, hparam in started.hparams.items():
            kind = hparam.WhichOneof("kind")
            if kind in ("number_value", "string_value", "bool_value"):
                self.config[name] = getattr(hparam, kind)


_KINDS = {
    "images": "images",
    "image": "images",
    "histograms": "histograms",
    "histo": "histograms",
    "text": "texts",
    "audio": "sounds",
    "pr_curves": "curves",
    "mesh": "meshes",
    "graphs": "graphs",
}


def first_tags(path: Path) -> tuple[list[str], bool]:
    """Names of the first scalars of a file, and whether it holds hyperparameters."""
    events = Events(path, Anomalies())
    events.most = _FIRST
    tags = dict.fromkeys(tag for _, _, tag, _ in events.points())
    return list(tags), events.hparams
