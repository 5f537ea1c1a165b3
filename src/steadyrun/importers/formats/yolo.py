"""YOLO's results.csv: losses in parts, whose sum is the loss."""

from __future__ import annotations

from pathlib import Path

from steadyrun.importers.anomalies import Anomalies
from steadyrun.importers.formats.csvfile import detect, layout, names_of, rows
from steadyrun.importers.log_rows import FileSample, Format, Log

_PARTS = (
    "box_loss", "cls_loss", "dfl_loss", "obj_loss", "seg_loss", "pose_loss", "kobj_loss", "angle_loss", "giou_loss",
    "l1_loss", "rle_loss",
)  # fmt: skip


def _parts(names: list[str], split: str) -> tuple[str, ...]:
    parts = tuple(name for name in names if name in {f"{split}/{part}" for part in _PARTS})
    return parts if len(parts) > 1 else ()


def _detect(sample: FileSample) -> bool:
    if not detect(sample):
        return False
    names = names_of(sample)
    return "epoch" in names and bool(_parts(names, "train"))


def _read(path: Path, _key: str, anomalies: Anomalies) -> Log:
    table = layout(path)
    sums = {"loss": _parts(table.names, "train"), "val_loss": _parts(table.names, "val")}
    return Log(
        rows(path, table, anomalies),
        sums={role: parts for role, parts in sums.items() if parts},
        kind="mean of an epoch",
    )


FORMAT = Format("yolo", "YOLO results.csv", _detect, _read)
