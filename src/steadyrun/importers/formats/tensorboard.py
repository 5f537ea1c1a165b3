"""TensorBoard: event files through its own reader, all points; a folder with event files is one run.

Three additions: `train/` and `validation/` beside each other (Keras writes them so) are one run; `eval/` below a folder
with event files belongs to it; and so do the folders that torch's writer makes for `add_scalars` (`loss_train/`) and
`add_hparams`.
"""

from __future__ import annotations

import heapq
import re
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadyrun.errors import LogError
from steadyrun.importers.formats.extras import absent, needed
from steadyrun.importers.log_rows import Anomalies, FileSample, Format, Log, Row, SourceRun, packed

# The records of one TensorBoard event file, read by TensorBoard itself; scalars of every fashion out of them.


Point = tuple[float, int | None, str, float]
"""Time, step, name, value."""

LOADER = "tensorboard.backend.event_processing.event_file_loader"
_FRAME = 16  # bytes around a record: its length, and two checksums
_HPARAMS = "_hparams_/session_start_info"
_FLOAT = 1  # DT_FLOAT
_NUMBERS = {1, 2, 3, 4, 5, 6, 9, 14, 17, 19, 22, 23}  # DT_FLOAT, DT_DOUBLE, DT_INT32… DT_UINT64
_EVERY = 1_000
_FIRST = 100  # records that show what a file is about


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
                self.anomalies.note("records that are not events", "left out", f"{self.path.name}, byte {self.at:,}")
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
        """Stop at a record that is cut off or has a wrong checksum, as TensorBoard's reader does."""
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
        self._passed[_KINDS.get(plugin or str(kind), "values other than numbers")] += 1
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


_TRAIN, _HELD_OUT = "train", {"validation": "val", "valid": "val", "val": "val", "eval": "val", "test": "test"}
_SPLITS = "train and validation"  # the key of such a run
_STARTED = re.compile(r"tfevents\.(\d+)")
_ITERATIONS = re.compile(r"^evaluation_(.+)_vs_iterations")
_SMALL = 2**18  # bytes: a folder of hyperparameters holds hardly more than them

Naming = Callable[[str], tuple[str, bool] | None]
"""A tag's name in the run, and whether its step is a step of the run; None if it is left out."""


@dataclass(frozen=True)
class EventSource:
    """A file of a run, and how its series are called there."""

    path: Path
    name: Naming


def event_files(folder: Path) -> list[Path]:
    """The event files of a folder in the order in which they were begun."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    files = [path for path in folder.iterdir() if "tfevents" in path.name and path.is_file() and not path.is_symlink()]
    return sorted((path for path in files if path.stat().st_size), key=lambda path: (_started(path), path.name))


def _started(path: Path) -> int:
    match = _STARTED.search(path.name)
    return int(match[1][:18]) if match else 0


def take(folder: Path, folders: list[str], files: list[str]) -> list[SourceRun]:
    """The run of a folder; its event files, and the folders that belong to it, are taken out of the lists."""
    runs = []
    if splits := _splits(folder, folders):
        folders[:] = [name for name in folders if name not in splits]
        runs.append(SourceRun(folder.resolve().name, _SPLITS))
    if any("tfevents" in name for name in files) and event_files(folder):
        files[:] = [name for name in files if "tfevents" not in name]
        mine = _children(folder, folders)
        folders[:] = [name for name in folders if name not in mine]
        runs.append(SourceRun(folder.resolve().name))
    return runs


def sources(path: Path, key: str) -> list[EventSource]:
    """The files of a run."""
    if path.is_file():
        return [EventSource(path, _as_it_is)]
    folders = sorted(folder.name for folder in path.iterdir() if folder.is_dir())
    splits = _splits(path, folders)
    if key == _SPLITS:
        naming = _of_batches if _has_batches(path) else _of_epochs
        return [
            EventSource(file, naming(_HELD_OUT.get(split, "")))
            for split in splits
            for file in event_files(path / split)
        ]
    event_sources = [EventSource(file, _as_it_is) for file in event_files(path)]
    for child, own in _children(path, [name for name in folders if name not in splits]).items():
        event_sources += [EventSource(file, own) for file in event_files(path / child)]
    return event_sources


def _as_it_is(tag: str) -> tuple[str, bool]:
    return tag, True


# -- train/ and validation/ -------------------------------------------------------------------------------------------


def _splits(folder: Path, folders: list[str]) -> list[str]:
    """`train` and what was held out, where both have event files."""
    held_out = [name for name in folders if name in _HELD_OUT and event_files(folder / name)]
    return [_TRAIN, *held_out] if held_out and _TRAIN in folders and event_files(folder / _TRAIN) else []


def counts_epochs(event_sources: list[EventSource], key: str) -> bool:
    """Whether the steps of a run are epochs: Keras', if it wrote nothing by batches."""
    if key != _SPLITS:
        return False
    tags = first_tags(event_sources[0].path)[0]
    return bool(tags) and all(tag.startswith("epoch_") for tag in tags)


def _has_batches(folder: Path) -> bool:
    files = event_files(folder / _TRAIN)
    return any(tag.startswith("batch_") for tag in first_tags(files[0])[0])


def _of_epochs(split: str) -> Naming:
    """Keras' `epoch_loss` is `loss`, in validation/ `val_loss`; what it repeats by iterations is left out."""

    def name(tag: str) -> tuple[str, bool] | None:
        plain = tag.removeprefix("epoch_")
        return None if _ITERATIONS.fullmatch(tag) else (f"{split}_{plain}" if split else plain, True)

    return name


def _of_batches(split: str) -> Naming:
    """Keras' `batch_loss` is `loss`; what it counts by epochs has no step then, and goes where it was written."""

    def name(tag: str) -> tuple[str, bool] | None:
        if match := _ITERATIONS.fullmatch(tag):
            return f"{split or 'val'}_{match[1]}", True
        if tag.startswith("epoch_"):
            plain = tag.removeprefix("epoch_")
            return (f"epoch_{split}_{plain}" if split else plain if plain == "learning_rate" else tag), False
        plain = tag.removeprefix("batch_")
        return (f"{split}_{plain}" if split else plain), True

    return name


# -- folders that belong to the one above -----------------------------------------------------------------------------


def _children(folder: Path, folders: list[str]) -> dict[str, Naming]:
    if absent(LOADER):
        return {}
    namings = {}
    for child in sorted(folders):
        files = event_files(folder / child)
        naming = _child(child, files[0]) if files else None
        if naming is not None:
            namings[child] = naming
    return namings


def _child(folder: str, file: Path) -> Naming | None:
    """`loss` in eval/ is `val_loss`, in loss_val/ `loss/val`; numbers beside hyperparameters are `hparams/…`."""
    if folder in _HELD_OUT:
        return lambda tag: (f"{_HELD_OUT[folder]}_{tag}", True)
    tags, hparams = first_tags(file)
    if hparams and file.stat().st_size < _SMALL:
        return lambda tag: (f"hparams/{tag}", True)
    front = f"{tags[0].replace('/', '_')}_" if len(tags) == 1 else ""
    if front and folder.startswith(front) and folder != front:
        return lambda tag: (f"{tag}/{folder.removeprefix(front)}", True)
    return None


_STEP, _TIME, _EPOCH = "step", "wall_time", "epoch"
_OWN = frozenset((_STEP, _TIME))


def _detect(sample: FileSample) -> bool:
    return "tfevents" in sample.name or b"brain.Event:" in sample.head[:64]


def _read(path: Path, key: str, anomalies: Anomalies) -> Log:
    event_sources = sources(path, key)
    if not event_sources:
        raise LogError(f"{path} has no event file (events.out.tfevents…). Give the folder that holds them.")
    by_epochs = counts_epochs(event_sources, key)
    log = Log(iter(()), kind="mean of an epoch" if by_epochs else "")
    log.roles = {"time": _TIME} if by_epochs else {"step": _STEP, "time": _TIME}
    events = [Events(source.path, anomalies, log.config) for source in event_sources]
    points = [_named(file.points(), source) for file, source in zip(events, event_sources, strict=True)]
    log.rows = packed(_checked(path, events, points, _EPOCH if by_epochs else _STEP))
    return log


def _checked(path: Path, events: list[Events], points: list[Iterator[Point]], axis: str) -> Iterator[Row]:
    """Rows of all files by time; an error where nothing at all could be read."""
    any_row = False
    merged = points[0] if len(points) == 1 else heapq.merge(*points, key=lambda point: point[0])
    for row in rows_of(merged, axis):
        any_row = True
        yield row
    for file in events:
        file.tell()
    if any_row:
        return
    first = events[0]
    if not any(file.records for file in events):
        raise LogError(
            f"{first.path}, byte 0: no record of an event file can be read here; it is damaged or cut off. Copy it "
            "again."
        )
    lost = next((file for file in events if file.lost), None)
    where = f"; {lost.path.name} is damaged or cut off at byte {lost.at:,}" if lost else ""
    raise LogError(f'{path} has no scalars{where}. Log some with writer.add_scalar("loss", loss, step).')


def _named(points: Iterator[Point], source: EventSource) -> Iterator[Point]:
    """Points under the names of the run; None for the step if it counts something else."""
    names: dict[str, tuple[str, bool]] = {}
    for time, step, tag, value in points:
        if tag not in names:
            naming = source.name(tag)
            names[tag] = ("", False) if naming is None else _beside_the_axis(*naming)
        name, counts = names[tag]
        if name:
            yield time, step if counts else None, name, value


def _beside_the_axis(name: str, counts: bool) -> tuple[str, bool]:
    """A series that is itself called `step` does not become the step."""
    return f"logged/{name}" if name in _OWN or not name else name, counts


def rows_of(points: Iterator[Point], axis: str = _STEP) -> Iterator[Row]:
    """Neighbouring points with the same step are one row; of the same name twice, two."""
    row: dict[str, float] = {}
    at: int | None = None
    for time, step, tag, value in points:
        if step != at or tag in row or not row:
            if row:
                yield row
            at = step
            row = {_TIME: time, tag: value} if step is None else {axis: step, _TIME: time, tag: value}
        else:
            row[tag] = value
    if row:
        yield row


FORMAT = Format("tensorboard", "TensorBoard event files", _detect, _read, extra="tensorboard", take=take)
