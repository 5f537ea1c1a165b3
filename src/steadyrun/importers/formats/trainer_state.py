"""Hugging Face `trainer_state.json`, and the output folders that hold one per checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from steadyrun.errors import LogError
from steadyrun.importers.formats.jsonfile import loaded, row_of
from steadyrun.importers.log_rows import Anomalies, FileSample, Format, Log, Row, packed

NAME = "trainer_state.json"
_KEPT = (
    "max_steps",
    "num_train_epochs",
    "train_batch_size",
    "logging_steps",
    "eval_steps",
    "save_steps",
    "global_step",
    "epoch",
)


def _detect(sample: FileSample) -> bool:
    return sample.name == NAME or (sample.head.lstrip().startswith(b"{") and b'"log_history"' in sample.head)


def newest(folder: Path) -> Path | None:
    """The state that knows most of a run: of the folder itself, or of its last checkpoint."""
    if (folder / NAME).is_file():
        return folder / NAME
    numbered = [(int(number), path) for path in folder.glob(f"checkpoint-*/{NAME}")
                if (number := path.parent.name.removeprefix("checkpoint-")).isdigit()]  # fmt: skip
    return max(numbered)[1] if numbered else None


def whole(folder: Path) -> bool:
    """Whether a folder is what a Trainer left, so that all in it belongs to one run."""
    return any((folder / name).exists() for name in ("training_args.bin", "config.json", "adapter_config.json")) or any(
        folder.glob("checkpoint-*")
    )


def _read(path: Path, _key: str, anomalies: Anomalies) -> Log:
    state = loaded(path, anomalies)
    history = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(history, list):
        raise LogError(f"{path} has no list `log_history`, so it is not a {NAME}. Give the one of the last checkpoint.")
    facts = {name: state[name] for name in _KEPT if isinstance(state.get(name), int | float | str)}
    return Log(packed(_rows(history, anomalies)), config=facts, kind="mean since the last point")


def _rows(history: list[Any], anomalies: Anomalies) -> Iterator[Row]:
    for index, entry in enumerate(history):
        if not isinstance(entry, dict):
            anomalies.note("entries of log_history that are not objects", "left out", f"entry {index}")
            continue
        row = row_of(entry, anomalies, f"log_history[{index}]")
        if "train_runtime" in row:  # the summary at the end: its train_loss is the mean of the whole run
            row = {name: value for name, value in row.items() if name != "train_loss"}
        yield row


FORMAT = Format("trainer_state", "Hugging Face trainer_state.json", _detect, _read)
